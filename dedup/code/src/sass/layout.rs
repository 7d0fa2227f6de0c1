//! Where the operands of an instruction lie in its fields, by the shape of its opcode.

use super::fields::Fields;
use super::table::OpcodeRow;
use super::vocabulary::{File, Operand, Registers, Shape, Space, Unknown};

/// The operands of one instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct OperandLayout {
    pub(super) destination: Registers,
    pub(super) sources: [Operand; 3],
    pub(super) address: [Registers; 2],
    pub(super) others: [Registers; 2],
}

const EMPTY: OperandLayout = OperandLayout {
    destination: Registers::NONE,
    sources: [Operand::None; 3],
    address: [Registers::NONE; 2],
    others: [Registers::NONE; 2],
};

/// The fields of one instruction of one architecture.
#[derive(Clone, Copy)]
struct FieldReader {
    fields: Fields,
    sm: u32,
}

pub(super) fn layout(row: &OpcodeRow, fields: Fields, sm: u32) -> Result<OperandLayout, Unknown> {
    let reader = FieldReader { fields, sm };
    Ok(match row.shape {
        Shape::General(letters) => reader.arithmetic(letters, File::General)?,
        Shape::Uniform(letters) => reader.arithmetic(letters, File::Uniform)?,
        Shape::Lea(uniform) => {
            reader.arithmetic("dABC", if uniform { File::Uniform } else { File::General })?
        }
        Shape::Wider(letters, bit, always) => reader.wider(letters, bit, always)?,
        Shape::Move(file) => reader.moved(file)?,
        Shape::Packed => reader.packed()?,
        Shape::Second => reader.arithmetic(if fields.form() == 1 { "dAB" } else { "dAC" }, File::General)?,
        Shape::SecondOnly => {
            reader.arithmetic(if fields.form() == 1 { "AB" } else { "AC" }, File::General)?
        }
        Shape::Remote => reader.remote()?,
        Shape::Convert => reader.convert()?,
        Shape::Matrix => reader.matrix(row.code)?,
        Shape::Memory(space) => reader.memory(space)?,
        Shape::Atomic(space, compares) => reader.atomic(space, compares)?,
        Shape::Cache => reader.cache()?,
        Shape::Refused => return Err(Unknown::Form),
        shape => reader.fixed(shape),
    })
}

impl FieldReader {
    fn general(self, at: u32, count: u8) -> Registers {
        let first = self.fields.byte(at);
        Registers { file: File::General, first, count: if first == 255 { 0 } else { count } }
    }

    fn uniform(self, at: u32, count: u8) -> Registers {
        let (first, zero) =
            if self.sm >= 100 { (self.fields.byte(at), 255) } else { (self.fields.bits(at, 6) as u8, 63) };
        Registers { file: File::Uniform, first, count: if first == zero { 0 } else { count } }
    }

    fn register(self, file: File, at: u32, count: u8) -> Registers {
        match file {
            File::General => self.general(at, count),
            File::Uniform => self.uniform(at, count),
        }
    }

    fn constant(self, words: u8, index: Registers, negated: bool) -> Operand {
        let bank = self.fields.bits(54, 5) as u8;
        // The newest loads count from a bit below.
        let first = if self.fields.code() == 0x7ac { 37 } else { 38 };
        let offset = self.fields.bits(first, 16);
        Operand::Constant { bank, offset, words, index, negated }
    }

    fn arithmetic(self, letters: &str, file: File) -> Result<OperandLayout, Unknown> {
        let count =
            |one: char, two: char| u8::from(letters.contains(one)) + 2 * u8::from(letters.contains(two));
        let destination = self.register(file, 16, count('d', 'D'));
        let [a, b, c] = [count('A', 'a'), count('B', 'b'), count('C', 'c')];
        let [negated_a, negated_b, negated_c] = [72, 63, 75].map(|at| self.fields.bit(at));
        let uniform = self.fields.bit(91);
        let first = Operand::Registers(self.register(file, 24, a), negated_a);
        let low = |count, negated| Operand::Registers(self.register(file, 32, count), negated);
        let high = |count, negated| Operand::Registers(self.register(file, 64, count), negated);
        let warp = |count, negated| Operand::Registers(self.uniform(32, count), negated);
        let number = Operand::Immediate(self.fields.immediate());
        let (second, third) = match (self.fields.form(), uniform) {
            (1, _) => (low(b, negated_b), high(c, negated_c)),
            (2, _) if c > 0 => (high(b, negated_c), number),
            (3, false) if c > 0 => (high(b, negated_c), self.constant(c, Registers::NONE, negated_b)),
            (4, _) if b > 0 => (number, high(c, negated_c)),
            (5, false) if b > 0 => (self.constant(b, Registers::NONE, negated_b), high(c, negated_c)),
            // Of uniform opcodes only moves are known in this form.
            (6, true) if b > 0 && (file == File::General || a == 0) => {
                (warp(b, negated_b), high(c, negated_c))
            }
            (7, true) if c > 0 => (high(b, negated_c), warp(c, negated_b)),
            _ => return Err(Unknown::Form),
        };
        let third = if c == 0 { Operand::None } else { third };
        let second = if b == 0 { Operand::None } else { second };
        let first = if a == 0 { Operand::None } else { first };
        Ok(OperandLayout { destination, sources: [first, second, third], ..EMPTY })
    }

    fn wider(self, letters: &str, bit: u32, always: bool) -> Result<OperandLayout, Unknown> {
        match self.fields.bit(bit) {
            true => self.arithmetic("Dab", File::General),
            false if always => Err(Unknown::Form),
            false => self.arithmetic(letters, File::General),
        }
    }

    fn moved(self, file: File) -> Result<OperandLayout, Unknown> {
        let wide = self.sm >= 100 && self.fields.bit(80);
        self.arithmetic(if wide { "Db" } else { "dB" }, file)
    }

    fn packed(self) -> Result<OperandLayout, Unknown> {
        if self.fields.bit(91) && self.fields.form() != 6 {
            return self.arithmetic("dAB", File::Uniform);
        }
        self.arithmetic("Dab", File::General)
    }

    /// Only the forms that drop copies of what is in memory. Others change bytes: a *discard*
    /// leaves them undefined.
    fn cache(self) -> Result<OperandLayout, Unknown> {
        let rest = (self.fields.bits(64, 32), self.fields.bits(96, 9));
        match (self.fields.code(), rest) {
            (0x98f, (0x0200_0000, 0)) | (0x540, (0x09c0_8000, 0)) => Ok(EMPTY),
            _ => Err(Unknown::Form),
        }
    }

    fn convert(self) -> Result<OperandLayout, Unknown> {
        let letters = match (self.fields.bits(75, 2), self.fields.bits(84, 2)) {
            (3, 3) => "Db",
            (3, _) => "DB",
            (_, 3) => "db",
            _ => "dB",
        };
        self.arithmetic(letters, File::General)
    }

    fn matrix(self, _code: u16) -> Result<OperandLayout, Unknown> {
        Ok(OperandLayout { destination: self.general(16, 4), ..EMPTY })
    }

    /// The registers that hold a value of the size in bits 73 to 75.
    fn sized(self) -> Result<u8, Unknown> {
        match self.fields.bits(73, 3) {
            0..=4 => Ok(1),
            5 => Ok(2),
            6 => Ok(4),
            _ => Err(Unknown::Form),
        }
    }

    /// The registers of an address. `at`: where the uniform one lies.
    fn address(self, space: Space, at: u32) -> [Registers; 2] {
        let wide = matches!(space, Space::Global | Space::Generic);
        let uniform = self.fields.bit(91);
        let base = if wide && (!uniform || self.fields.bit(90)) { 2 } else { 1 };
        let second = match uniform {
            true => self.uniform(at, if wide { 2 } else { 1 }),
            false => Registers::NONE,
        };
        [self.general(24, base), second]
    }

    fn memory(self, space: Space) -> Result<OperandLayout, Unknown> {
        let count = self.sized()?;
        let loads = matches!(self.fields.code(), 0x380 | 0x381 | 0x980..=0x984);
        if loads {
            let (destination, address) = (self.general(16, count), self.address(space, 32));
            return Ok(OperandLayout { destination, address, ..EMPTY });
        }
        Ok(self.stored(space, count))
    }

    fn remote(self) -> Result<OperandLayout, Unknown> {
        let mut layout = self.stored(Space::Shared, self.sized()?);
        layout.address = [self.general(24, 2), Registers::NONE];
        Ok(layout)
    }

    fn stored(self, space: Space, count: u8) -> OperandLayout {
        let data = Operand::Registers(self.general(32, count), false);
        OperandLayout {
            sources: [Operand::None, data, Operand::None],
            address: self.address(space, 64),
            ..EMPTY
        }
    }

    /// The registers of an atomic operation's data, by its type.
    fn typed(self) -> u8 {
        match (self.fields.code(), self.fields.bits(73, 3)) {
            (0x3a3 | 0x9a3 | 0x9a6, 7) => 2,
            (0x3a3 | 0x9a3 | 0x9a6, _) => 1,
            (_, 2 | 5 | 6) => 2,
            _ => 1,
        }
    }

    fn atomic(self, space: Space, compares: bool) -> Result<OperandLayout, Unknown> {
        let count = self.typed();
        let mut layout = self.stored(space, count);
        if self.fields.code() == 0xf8c {
            layout.sources[1] = Operand::None;
        }
        layout.destination = self.general(16, count);
        if compares {
            layout.sources[2] = Operand::Registers(self.general(64, count), false);
        }
        Ok(layout)
    }

    fn fixed(self, shape: Shape) -> OperandLayout {
        match shape {
            Shape::ToUniform | Shape::ToUniformOld => self.to_uniform(),
            Shape::Flag | Shape::Vote => self.to(self.general(16, 1)),
            Shape::UniformFlag | Shape::UniformVote | Shape::UniformPredicates | Shape::Elect => {
                self.to(self.uniform(16, 1))
            }
            Shape::WideNumber(file) => self.wide_number(file),
            Shape::WidePair(file) => self.wide_pair(file),
            Shape::Warpgroup => self.warpgroup(),
            Shape::Special => self.to(self.general(16, 2)),
            Shape::Wide => self.to(self.general(16, 2)),
            Shape::Predicates => self.predicates(),
            Shape::FromPredicates => self.reads([self.general(24, 1), Registers::NONE]),
            Shape::Reduction => self.stored(Space::Global, self.typed()),
            Shape::Barrier => self.barrier(),
            Shape::UniformBarrier => self.uniform_barrier(),
            Shape::Arrive => self.reads(self.address(Space::Shared, 64)),
            Shape::BlockBarrier => self.block_barrier(),
            Shape::Copy => self.copy(),
            Shape::Rows => self.rows(),
            Shape::RowsStore => self.rows_store(),
            Shape::Shuffle => self.shuffle(),
            Shape::Constant(uniform) => self.bank(uniform),
            Shape::Tensor => self.tensor(),
            Shape::Target => self.target(),
            _ => EMPTY,
        }
    }

    fn to(self, destination: Registers) -> OperandLayout {
        OperandLayout { destination, ..EMPTY }
    }

    fn reads(self, others: [Registers; 2]) -> OperandLayout {
        OperandLayout { others, ..EMPTY }
    }

    fn to_uniform(self) -> OperandLayout {
        let source = Operand::Registers(self.general(24, 1), false);
        OperandLayout {
            destination: self.uniform(16, 1),
            sources: [source, Operand::None, Operand::None],
            ..EMPTY
        }
    }

    /// 64 rows and a multiple of eight columns, of 32 or 16 bits each, in 128 threads.
    fn warpgroup(self) -> OperandLayout {
        let eights = self.fields.bits(53, 5) as u8 + 1;
        self.to(self.general(16, if self.fields.bit(76) { eights * 4 } else { eights * 2 }))
    }

    fn wide_number(self, file: File) -> OperandLayout {
        OperandLayout {
            destination: self.register(file, 16, 2),
            sources: [Operand::None, Operand::Wide, Operand::None],
            ..EMPTY
        }
    }

    fn wide_pair(self, file: File) -> OperandLayout {
        let pair = |at| Operand::Registers(self.register(file, at, 2), false);
        let number = matches!(self.fields.code(), 0x407 | 0x487);
        let second = if number { Operand::Wide } else { pair(32) };
        OperandLayout {
            destination: self.register(file, 16, 2),
            sources: [pair(24), second, Operand::None],
            ..EMPTY
        }
    }

    fn predicates(self) -> OperandLayout {
        let source = Operand::Registers(self.general(24, 1), false);
        OperandLayout {
            destination: self.general(16, 1),
            sources: [source, Operand::None, Operand::None],
            ..EMPTY
        }
    }

    fn barrier(self) -> OperandLayout {
        let data = self.general(32, 1);
        let [base, uniform] = self.address(Space::Shared, 64);
        let address = [base, if self.fields.bit(91) { uniform } else { Registers::NONE }];
        OperandLayout { address, others: [data, Registers::NONE], ..EMPTY }
    }

    fn uniform_barrier(self) -> OperandLayout {
        self.reads([self.uniform(24, 1), self.uniform(32, 2)])
    }

    fn block_barrier(self) -> OperandLayout {
        if self.fields.code() == 0x91d {
            return self.reads([self.general(32, 1), Registers::NONE]);
        }
        EMPTY
    }

    fn copy(self) -> OperandLayout {
        OperandLayout {
            address: [self.general(24, 2), self.uniform(64, 2)],
            others: [self.general(16, 1), Registers::NONE],
            ..EMPTY
        }
    }

    fn rows(self) -> OperandLayout {
        let count = 1 << self.fields.bits(72, 2);
        OperandLayout {
            destination: self.general(16, count),
            address: self.address(Space::Shared, 32),
            ..EMPTY
        }
    }

    fn rows_store(self) -> OperandLayout {
        self.stored(Space::Shared, 1 << self.fields.bits(72, 2))
    }

    fn shuffle(self) -> OperandLayout {
        let source = Operand::Registers(self.general(24, 1), false);
        OperandLayout {
            destination: self.general(16, 1),
            sources: [source, Operand::None, Operand::None],
            others: self.lanes(),
            ..EMPTY
        }
    }

    fn lanes(self) -> [Registers; 2] {
        match self.fields.code() {
            0x389 => [self.general(32, 1), self.general(64, 1)],
            0x589 => [self.general(32, 1), Registers::NONE],
            0x989 => [self.general(64, 1), Registers::NONE],
            _ => [Registers::NONE; 2],
        }
    }

    fn bank(self, uniform: bool) -> OperandLayout {
        let words = match self.fields.bits(73, 3) {
            0..=4 => 1,
            5 => 2,
            _ => 4,
        };
        let file = if uniform { File::Uniform } else { File::General };
        let indexed = self.fields.code() != 0xab9;
        let index = if indexed { self.register(file, 24, 1) } else { Registers::NONE };
        let source = self.constant(words, index, false);
        OperandLayout {
            destination: self.register(file, 16, words),
            sources: [source, Operand::None, Operand::None],
            ..EMPTY
        }
    }

    fn tensor(self) -> OperandLayout {
        OperandLayout { address: [self.uniform(24, 2), Registers::NONE], ..EMPTY }
    }

    fn target(self) -> OperandLayout {
        match self.fields.code() {
            0x343 | 0x949 | 0x950 => {
                OperandLayout { address: [self.general(24, 2), Registers::NONE], ..EMPTY }
            }
            _ => EMPTY,
        }
    }
}
