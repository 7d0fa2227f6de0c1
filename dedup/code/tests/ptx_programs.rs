//! Hazard (wrong result): a chain of instructions carries a pointer to a store, and the verdict
//! does not name where it came from.
//!
//! Programs are drawn and run on a model of a thread. Each store that the model makes must be one
//! that the verdict allows for the values of the parameters.

use std::collections::HashMap;
use std::fmt::Write;

use proptest::prelude::*;
use wm_code::launch::{LaunchWrites, written};
use wm_code::ptx::judge;
use wm_code::verdict::CodeVerdict;

const REGISTERS: usize = 8;
const PARAMETERS: usize = 4;

/// Places in memory, apart from each other: those of the program first, then those of which only
/// memory has the address, and the last one, which is the thread's own.
const PLACES: [u64; 7] = [
    0x2a5b_9c30_0000,
    0x3f11_7d20_0000,
    0x47d3_0e50_0000,
    0x51c9_6ab0_0000,
    0x5ee7_3480_0000,
    0x6d02_f5e0_0000,
    0x7731_88d0_0000,
];
const PLACE_BYTES: u64 = 1 << 20;
const OWN: usize = 6;

fn place(address: u64) -> Option<usize> {
    PLACES.iter().position(|place| (*place..place + PLACE_BYTES).contains(&address))
}

/// The value of a parameter: an address in one of four places, or a small number.
fn parameter() -> impl Strategy<Value = u64> {
    prop_oneof![3 => (0..PARAMETERS, 0..64_u64).prop_map(|(place, at)| PLACES[place] + 8 * at), 1 => 0..100_u64]
}

/// One instruction: its kind, its registers, and a number.
type Drawn = (u8, usize, usize, usize, u64);

fn drawn() -> impl Strategy<Value = Drawn> {
    (0..24_u8, 0..REGISTERS, 0..REGISTERS, 0..REGISTERS, 0..16_u64)
}

/// A thread, and the text of what it did.
struct Thread {
    registers: [u64; REGISTERS],
    own: HashMap<u64, u64>,
    shared: [u64; 4],
    memory: HashMap<u64, u64>,
    text: String,
    stores: Vec<usize>,
}

impl Thread {
    fn new(parameters: &[u64]) -> Self {
        let mut thread = Self {
            registers: [0; REGISTERS],
            own: HashMap::new(),
            shared: [0; 4],
            memory: HashMap::new(),
            text: String::new(),
            stores: Vec::new(),
        };
        for (number, value) in parameters.iter().enumerate() {
            thread.set(number, *value, &format!("ld.param.u64 {{}}, [p{number}];"));
        }
        for number in PARAMETERS..REGISTERS - 1 {
            thread.set(number, 8 * number as u64, &format!("mov.u64 {{}}, {};", 8 * number));
        }
        thread.say("mov.u64 %rd90, own;");
        thread.set(REGISTERS - 1, PLACES[OWN], "cvta.local.u64 {}, %rd90;");
        thread
    }

    fn say(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}");
    }

    /// Sets a register by an instruction, in which `{}` is the register.
    fn set(&mut self, register: usize, value: u64, text: &str) {
        self.registers[register] = value;
        let text = text.replace("{}", &format!("%rd{register}"));
        self.say(&text);
    }

    fn read(&self, address: u64) -> Option<u64> {
        let place = place(address)?;
        let other = PLACES[4 + (address / 8 % 2) as usize] + address % 64;
        let first = if address / 16 % 2 == 0 { other } else { address % 100 };
        let content = if place == OWN {
            self.own.get(&address).copied().unwrap_or(0)
        } else {
            *self.memory.get(&address).unwrap_or(&first)
        };
        Some(content)
    }

    fn write(&mut self, address: u64, value: u64) -> bool {
        match place(address) {
            Some(OWN) => self.own.insert(address, value).is_some() || true,
            Some(_) if place(value) == Some(OWN) => false,
            Some(place) => {
                self.memory.insert(address, value);
                self.stores.push(place);
                true
            }
            None => false,
        }
    }

    fn take(&mut self, (kind, to, a, b, number): Drawn) {
        let (x, y) = (self.registers[a], self.registers[b]);
        let (slot, at) = ((number % 4) as usize, number * 8);
        match kind {
            0 => self.set(to, x, &format!("mov.b64 {{}}, %rd{a};")),
            1 => self.set(to, x.wrapping_add(number), &format!("add.s64 {{}}, %rd{a}, {number};")),
            2 => self.set(to, x.wrapping_add(y), &format!("add.s64 {{}}, %rd{a}, %rd{b};")),
            3 => self.set(to, x.wrapping_sub(y), &format!("sub.s64 {{}}, %rd{a}, %rd{b};")),
            4 => self.set(to, x.wrapping_sub(at), &format!("sub.s64 {{}}, %rd{a}, {at};")),
            5 => self.set(to, x << (number % 5), &format!("shl.b64 {{}}, %rd{a}, {};", number % 5)),
            6 => self.set(to, x & !7, &format!("and.b64 {{}}, %rd{a}, -8;")),
            7 => self.set(to, x ^ y, &format!("xor.b64 {{}}, %rd{a}, %rd{b};")),
            8 => self.set(to, x.wrapping_mul(number), &format!("mul.lo.s64 {{}}, %rd{a}, {number};")),
            9 => self.set(to, x.wrapping_neg(), &format!("neg.s64 {{}}, %rd{a};")),
            10 => self.set(to, !x, &format!("not.b64 {{}}, %rd{a};")),
            11 => self.set(to, if number < 8 { x } else { y }, &format!("selp.b64 {{}}, %rd{a}, %rd{b}, %p1;")),
            12 if number < 8 => self.set(to, x, &format!("@%p1 mov.b64 {{}}, %rd{a};")),
            12 => self.say(&format!("@%p1 mov.b64 %rd{to}, %rd{a};")),
            13 => self.set(to, x >> 32 << 32 | y & 0xffff_ffff, &format!("mov.b64 {{%r1, %r2}}, %rd{a}; mov.b64 {{%r3, %r4}}, %rd{b}; mov.b64 {{}}, {{%r3, %r2}};")),
            14 => self.set(to, x.wrapping_add(y), &format!("mov.b64 {{%r1, %r2}}, %rd{a}; mov.b64 {{%r3, %r4}}, %rd{b}; add.cc.u32 %r5, %r1, %r3; addc.u32 %r6, %r2, %r4; mov.b64 {{}}, {{%r5, %r6}};")),
            15 => self.set(to, x.wrapping_sub(y), &format!("mov.b64 {{%r1, %r2}}, %rd{a}; mov.b64 {{%r3, %r4}}, %rd{b}; sub.cc.u32 %r5, %r1, %r3; subc.u32 %r6, %r2, %r4; mov.b64 {{}}, {{%r5, %r6}};")),
            16 => {
                self.shared[slot] = x;
                self.say(&format!("st.shared.u64 [shared+{}], %rd{a};", 8 * slot));
            }
            17 => self.set(to, self.shared[slot], &format!("ld.shared.u64 {{}}, [shared+{}];", 8 * slot)),
            18 | 19 => if let Some(value) = self.read(x.wrapping_add(at)) {
                let space = if place(x.wrapping_add(at)) == Some(OWN) || kind == 18 { "" } else { ".global" };
                self.set(to, value, &format!("ld{space}.u64 {{}}, [%rd{a}+{at}];"));
            },
            20 => if let Some(value) = self.read(x).filter(|_| place(x) != Some(OWN)) {
                self.write(x, y);
                self.set(to, value, &format!("atom.global.exch.b64 {{}}, [%rd{a}], %rd{b};"));
            },
            _ => if self.write(x.wrapping_add(at), y) {
                let space = if place(x.wrapping_add(at)) == Some(OWN) || kind == 21 { "" } else { ".global" };
                self.say(&format!("st{space}.u64 [%rd{a}+{at}], %rd{b};"));
            },
        }
    }
}

fn kernel(body: &str) -> String {
    let parameters =
        (0..PARAMETERS).map(|number| format!(".param .u64 p{number}")).collect::<Vec<_>>().join(", ");
    format!(
        ".version 8.2\n.target sm_80\n.address_size 64\n.visible .entry k({parameters}) {{\n.reg .b64 %rd<99>;\n.local .align 8 .b8 own[1048576];\n.shared .align 8 .b8 shared[32];\n{body}ret;\n}}\n"
    )
}

/// May a launch with these parameters store to the place?
fn allows(written: &LaunchWrites, parameters: &[u64], to: usize) -> bool {
    let is_there = |offset: &u32| place(parameters[*offset as usize / 8]) == Some(to);
    written.loaded || written.through.iter().any(is_there)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn each_store_of_a_program_is_allowed_by_its_verdict(
        parameters in prop::collection::vec(parameter(), PARAMETERS), program in prop::collection::vec(drawn(), 1..40),
    ) {
        let mut thread = Thread::new(&parameters);
        program.into_iter().for_each(|drawn| thread.take(drawn));
        let text = kernel(&thread.text);
        let verdicts = judge(&text).expect("PTX");
        prop_assert_eq!(verdicts.len(), 1);
        // A program that stores an address of its own memory is undecided.
        let CodeVerdict::Decided(effects) = &verdicts[0].1 else { return Ok(()) };
        let written = written(effects, |offset| offset % 8 == 0 && place(parameters[offset as usize / 8]).is_some());
        for to in &thread.stores {
            prop_assert!(allows(&written, &parameters, *to), "place {to}, {written:?} of {effects:?}\n{text}");
        }
    }
}
