//! Element types in plain Rust: what an element's bytes mean, and the bytes of a value. The 16-bit
//! formats are computed with f64 arithmetic, not with bits as in the kernels.

use super::support::Draws;

pub(crate) const FLOAT: u32 = 1;
pub(crate) const HALF: u32 = 2;
pub(crate) const DOUBLE: u32 = 3;
pub(crate) const BF16: u32 = 4;
pub(crate) const INT: u32 = 5;
pub(crate) const INT64: u32 = 6;
pub(crate) const INT16: u32 = 7;
pub(crate) const INT8: u32 = 8;

pub(crate) const FLOATS: [u32; 4] = [FLOAT, HALF, DOUBLE, BF16];
pub(crate) const INTEGERS: [u32; 4] = [INT, INT64, INT16, INT8];

/// Fraction bits and the exponent of the smallest normal number.
const HALF_FORMAT: (i32, i32) = (10, -14);
const BRAIN_FORMAT: (i32, i32) = (7, -126);

/// An element's value; every floating-point type is exact as f64.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    Float(f64),
    Integer(i64),
}

pub(crate) fn size(kind: u32) -> usize {
    match kind {
        DOUBLE | INT64 => 8,
        FLOAT | INT => 4,
        HALF | BF16 | INT16 => 2,
        _ => 1,
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

pub(crate) fn decode(kind: u32, bytes: &[u8]) -> Value {
    let bits = word(bytes);
    match kind {
        FLOAT => Value::Float(f64::from(f32::from_bits(bits as u32))),
        DOUBLE => Value::Float(f64::from_bits(bits)),
        HALF => Value::Float(small_value(bits as u16, HALF_FORMAT)),
        BF16 => Value::Float(small_value(bits as u16, BRAIN_FORMAT)),
        INT => Value::Integer(i64::from(bits as i32)),
        INT64 => Value::Integer(bits as i64),
        INT16 => Value::Integer(i64::from(bits as i16)),
        _ => Value::Integer(i64::from(bits as i8)),
    }
}

/// The value of an element of a floating-point type.
pub(crate) fn float(kind: u32, bytes: &[u8]) -> f64 {
    match decode(kind, bytes) {
        Value::Float(x) => x,
        Value::Integer(_) => panic!("an embedding has floats"),
    }
}

pub(crate) fn encode(kind: u32, value: Value) -> Vec<u8> {
    match (kind, value) {
        (FLOAT, Value::Float(x)) => (x as f32).to_le_bytes().to_vec(),
        (DOUBLE, Value::Float(x)) => x.to_le_bytes().to_vec(),
        (HALF, Value::Float(x)) => small_bits(x, HALF_FORMAT).to_le_bytes().to_vec(),
        (BF16, Value::Float(x)) => small_bits(x, BRAIN_FORMAT).to_le_bytes().to_vec(),
        (_, Value::Integer(x)) => x.to_le_bytes()[..size(kind)].to_vec(),
        _ => panic!("no conversion between the families"),
    }
}

/// Whether two elements are the same; one NaN is like another.
pub(crate) fn same(kind: u32, a: &[u8], b: &[u8]) -> bool {
    match (decode(kind, a), decode(kind, b)) {
        (Value::Float(a), Value::Float(b)) if a.is_nan() => b.is_nan(),
        _ => a == b,
    }
}

fn small_value(bits: u16, (fraction_bits, smallest): (i32, i32)) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1));
    let exponent = i32::from(bits & 0x7fff) >> fraction_bits;
    let implied = f64::from(1u32 << fraction_bits);
    if exponent == i32::from(0x7fff_u16) >> fraction_bits {
        return if fraction == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    let (whole, power) =
        if exponent == 0 { (fraction, smallest) } else { (fraction + implied, exponent - 1 + smallest) };
    sign * whole * 2f64.powi(power - fraction_bits)
}

fn small_bits(x: f64, (fraction_bits, smallest): (i32, i32)) -> u16 {
    if x.is_nan() {
        return 0x7fff;
    }
    let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
    let infinity = 0x7fff_i64 >> fraction_bits << fraction_bits;
    if x.is_infinite() || x.abs() >= 2f64.powi(200) {
        return sign | infinity as u16;
    }
    if x.abs() < 2f64.powi(-200) {
        return sign;
    }
    let mut exponent = smallest;
    while x.abs() >= 2f64.powi(exponent + 1) {
        exponent += 1;
    }
    let steps = (x.abs() / 2f64.powi(exponent - fraction_bits)).round_ties_even() as i64;
    let bits = (i64::from(exponent - smallest) << fraction_bits) + steps;
    sign | bits.min(infinity) as u16
}

/// A floating-point value that a careless conversion gets wrong: ties, neighbours of ties, the
/// edges of the formats.
fn hard_float(draws: &mut Draws) -> f64 {
    let format = draws.of(&[HALF_FORMAT, BRAIN_FORMAT]);
    let near = small_value(draws.word() as u16, format);
    let above = small_value(draws.word() as u16, format);
    match draws.below(8) {
        0 => f64::from_bits(draws.word()),
        1 => f64::from(f32::from_bits(draws.word() as u32)),
        2 => draws.of(&[
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            65519.99,
            65520.0,
            65536.0,
            1e-310,
        ]),
        3 => near,
        4 => f64::from(near as f32) + f64::from(above as f32),
        5 => draws.word() as i32 as f64 / 1024.0,
        kind => {
            // Halfway from one value of the format to the next, and beside it by less than an f32
            // shows.
            let step = 2f64.powi(near.abs().log2().floor().max(f64::from(format.1)) as i32 - format.0);
            let tie = near + step / 2.0;
            if kind == 6 { tie } else { tie * (1.0 + draws.of(&[-1e-12, 1e-12, -1e-15, 1e-15])) }
        }
    }
}

/// An element of the type, from values that are hard to convert.
pub(crate) fn draw(kind: u32, draws: &mut Draws) -> Vec<u8> {
    if INTEGERS.contains(&kind) {
        let hard =
            [0, -1, 127, 128, -128, -129, 32767, 32768, i64::from(i32::MIN), i64::MAX, i64::MIN, 1 << 32];
        let value = if draws.below(2) == 0 { draws.of(&hard) } else { draws.word() as i64 };
        return encode(kind, Value::Integer(value));
    }
    encode(kind, Value::Float(hard_float(draws)))
}

#[test]
fn the_reference_knows_the_formats() {
    assert_eq!(small_bits(1.0, HALF_FORMAT), 0x3c00);
    assert_eq!(small_bits(65520.0, HALF_FORMAT), 0x7c00);
    assert_eq!(small_bits(65519.9, HALF_FORMAT), 0x7bff);
    assert_eq!(small_bits(2f64.powi(-25), HALF_FORMAT), 0);
    assert_eq!(small_bits(1.5 * 2f64.powi(-25), HALF_FORMAT), 1);
    assert_eq!(small_bits(-1.0, BRAIN_FORMAT), 0xbf80);
    assert_eq!(small_bits(3.4e38, BRAIN_FORMAT), 0x7f80);
    for format in [HALF_FORMAT, BRAIN_FORMAT] {
        for bits in 0..=u16::MAX {
            let value = small_value(bits, format);
            assert!(value.is_nan() || small_bits(value, format) == bits, "{bits:#x}");
        }
    }
}
