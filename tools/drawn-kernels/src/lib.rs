//! Kernels that are drawn at random, with what each of their registers may hold: pointers of
//! parameters, or pointers that were loaded.
//!
//! They pass pointers through sums, choices, branches, loops, shared and local memory, other lanes,
//! tables of parameters and subroutines, in PTX, which a compiler makes machine code of. So what a
//! kernel may store through is known without an analysis of its code.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Registers that hold pointers.
const POINTERS: usize = 8;
/// Parameters that are pointers: words 0 to 5.
pub const PARAMETERS: usize = 6;
/// The word of a pointer to a table: a number below [`MOST`], then pointers.
pub const TABLE: u32 = 6;
/// The word of two numbers, of 1 to [`POINTERS_IN_TABLE`], and below [`MOST`].
pub const NUMBERS: u32 = 7;
/// The first word of an array of pointers among the parameters, and its length.
pub const ARRAY: u32 = 8;
/// Its length.
pub const ARRAY_WORDS: u32 = 4;
/// Pointers in the table, behind its number.
pub const POINTERS_IN_TABLE: u64 = 8;
/// No number is as large.
pub const MOST: u64 = 64;
/// A kernel that runs, with this many threads, uses no address so far behind one that it was given,
/// and none before.
pub const REACH: u64 = 32 << 10;
/// Threads of a block.
pub const THREADS: u32 = 32;

/// The lines that texts of kernels begin with.
pub const HEADER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

/// Where a pointer may come from: a word of the parameters, or the memory of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The word with this number, of eight bytes.
    Word(u32),
    /// Memory of the table, or a number in the code.
    Loaded,
}

type Origins = BTreeSet<Origin>;

/// The use of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawnFor {
    /// Its code is read.
    Reading,
    /// It also runs: each address that it uses is near one that it was given.
    Running,
}

/// A kernel, and what it may store through.
#[derive(Debug, Clone)]
pub struct DrawnKernel {
    /// Its name in the text.
    pub name: String,
    /// Its text, behind [`HEADER`].
    pub text: String,
    /// Where the pointers come from that it stores through.
    pub stored: BTreeSet<Origin>,
}

/// Draws a kernel. The same seed gives the same one.
#[must_use]
pub fn draw(seed: u64, purpose: DrawnFor) -> DrawnKernel {
    let registers = (0..POINTERS).map(|at| [Origin::Word((at % PARAMETERS) as u32)].into()).collect();
    let mut drawing = Drawing {
        random: fastrand::Rng::with_seed(seed),
        purpose,
        text: String::new(),
        labels: 0,
        registers,
        shared: Origins::new(),
        local: vec![Origins::new(); 4],
        stored: Origins::new(),
    };
    let name = format!("drawn_{seed}");
    drawing.begin(&name);
    for _ in 0..drawing.random.usize(4..30) {
        drawing.step();
    }
    drawing.store();
    drawing.say("ret;\n}");
    DrawnKernel { name, text: drawing.text, stored: drawing.stored }
}

/// A kernel while it is drawn.
struct Drawing {
    random: fastrand::Rng,
    purpose: DrawnFor,
    text: String,
    labels: usize,
    registers: Vec<Origins>,
    shared: Origins,
    local: Vec<Origins>,
    stored: Origins,
}

impl Drawing {
    fn begin(&mut self, name: &str) {
        let limit = [24, 32, 64][self.random.usize(0..3)];
        let _ = write!(
            self.text,
            ".visible .entry {name}(\
             .param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4, \
             .param .u64 p5, .param .u64 table, .param .u32 n, .param .u32 m, \
             .param .align 8 .b8 many[{}]) .maxnreg {limit} {{\n\
             .reg .b64 %rd<64>; .reg .b32 %r<32>; .reg .pred %p<8>;\n\
             .local .align 8 .b8 own[32]; .shared .align 8 .b8 both[2048];\n",
            ARRAY_WORDS * 8
        );
        for at in 0..POINTERS {
            self.say(&format!("ld.param.u64 %rd{at}, [p{}];", at % PARAMETERS));
            self.say(&format!("cvta.to.global.u64 %rd{at}, %rd{at};"));
        }
        self.say("ld.param.u64 %rd20, [table];");
        self.say("ld.param.u32 %r0, [n]; ld.param.u32 %r1, [m]; mov.u32 %r2, %tid.x; mov.u32 %r3, %r2;");
        self.say("mov.u64 %rd21, own; mov.u64 %rd22, both;");
        self.say("mad.wide.u32 %rd23, %r2, 8, %rd22;");
        self.say("add.u32 %r4, %r2, 1; and.b32 %r4, %r4, 31; mad.wide.u32 %rd24, %r4, 8, %rd22;");
        for slot in 0..4 {
            let from = self.pointer();
            self.say(&format!("st.local.u64 [own+{}], %rd{from};", 8 * slot));
            self.local[slot] = self.registers[from].clone();
        }
    }

    fn say(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }

    fn pointer(&mut self) -> usize {
        self.random.usize(0..POINTERS)
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// A number of which the compiler knows nothing, not even that it is another one's equal.
    fn number(&mut self) {
        self.say("ld.volatile.global.u32 %r11, [%rd20];");
    }

    fn predicate(&mut self) {
        let than = self.random.u32(0..100);
        self.number();
        self.say(&format!("setp.gt.s32 %p0, %r11, {than};"));
    }

    fn step(&mut self) {
        match self.random.usize(0..17) {
            0 | 1 => self.add(),
            2 | 3 => self.choose(),
            4 => self.branch(),
            5 => self.swap_in_loop(),
            6 => self.through_shared(),
            7 => self.save_local(),
            8 | 9 => self.load_local(),
            10 => self.other_lane(),
            11 => self.load_table(),
            12 => self.load_array(),
            13 => self.divide(),
            14 => self.index_from_memory(),
            15 if self.purpose == DrawnFor::Reading => self.literal(),
            _ => self.store(),
        }
    }

    fn add(&mut self) {
        let (to, from) = (self.pointer(), self.pointer());
        let number = self.random.usize(0..3);
        self.say(&format!("mad.wide.s32 %rd{to}, %r{number}, 8, %rd{from};"));
        self.registers[to] = self.registers[from].clone();
    }

    fn choose(&mut self) {
        let (to, one, other) = (self.pointer(), self.pointer(), self.pointer());
        self.predicate();
        self.say(&format!("selp.b64 %rd{to}, %rd{one}, %rd{other}, %p0;"));
        self.registers[to] = &self.registers[one] | &self.registers[other];
    }

    fn branch(&mut self) {
        let (to, from, end) = (self.pointer(), self.pointer(), self.label());
        self.predicate();
        self.say(&format!("@%p0 bra {end};"));
        self.say(&format!("st.global.u32 [%rd{to}], %r3;"));
        self.stored.extend(self.registers[to].clone());
        self.say(&format!("add.s64 %rd{to}, %rd{from}, 16;"));
        self.say(&format!("{end}:"));
        self.registers[to] = &self.registers[to] | &self.registers[from];
    }

    fn swap_in_loop(&mut self) {
        let (one, other, start) = (self.pointer(), self.pointer(), self.label());
        self.number();
        self.say("mov.u32 %r10, 0;");
        self.say(&format!("{start}:"));
        self.say(&format!("mov.u64 %rd40, %rd{one}; add.s64 %rd{one}, %rd{other}, 8;"));
        self.say(&format!("mov.u64 %rd{other}, %rd40;"));
        self.say("add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, %r11;");
        self.say(&format!("@%p1 bra {start};"));
        let both = &self.registers[one] | &self.registers[other];
        self.registers[one] = both.clone();
        self.registers[other] = both;
    }

    fn through_shared(&mut self) {
        let (to, from) = (self.pointer(), self.pointer());
        self.shared.extend(self.registers[from].clone());
        self.say(&format!("st.shared.u64 [%rd23], %rd{from}; bar.sync 0;"));
        self.say(&format!("ld.shared.u64 %rd{to}, [%rd24]; bar.sync 0;"));
        // What another thread has written: anything that was ever put there before.
        self.registers[to] = self.registers[from].clone();
    }

    fn save_local(&mut self) {
        let from = self.pointer();
        self.number();
        self.say("and.b32 %r11, %r11, 3; mad.wide.u32 %rd41, %r11, 8, %rd21;");
        self.say(&format!("st.local.u64 [%rd41], %rd{from};"));
        for slot in 0..4 {
            self.local[slot] = &self.local[slot] | &self.registers[from];
        }
    }

    fn load_local(&mut self) {
        let to = self.pointer();
        if self.random.bool() {
            let slot = self.random.usize(0..4);
            self.say(&format!("ld.local.u64 %rd{to}, [own+{}];", 8 * slot));
            self.registers[to] = self.local[slot].clone();
            return;
        }
        self.number();
        self.say("and.b32 %r11, %r11, 3; mad.wide.u32 %rd41, %r11, 8, %rd21;");
        self.say(&format!("ld.local.u64 %rd{to}, [%rd41];"));
        self.registers[to] = self.local.iter().flatten().copied().collect();
    }

    fn other_lane(&mut self) {
        let (to, from) = (self.pointer(), self.pointer());
        self.say(&format!("mov.b64 {{%r12, %r13}}, %rd{from};"));
        self.say("shfl.sync.bfly.b32 %r14, %r12, 1, 31, -1; shfl.sync.bfly.b32 %r15, %r13, 1, 31, -1;");
        self.say(&format!("mov.b64 %rd{to}, {{%r14, %r15}};"));
        self.registers[to] = self.registers[from].clone();
    }

    fn load_table(&mut self) {
        let to = self.pointer();
        self.say("mad.wide.u32 %rd42, %r0, 8, %rd20;");
        self.say(&format!("ld.global.u64 %rd{to}, [%rd42];"));
        self.registers[to] = [Origin::Loaded].into();
    }

    fn load_array(&mut self) {
        let to = self.pointer();
        self.say("and.b32 %r11, %r1, 3; mov.u64 %rd43, many; mad.wide.u32 %rd43, %r11, 8, %rd43;");
        self.say(&format!("ld.param.u64 %rd{to}, [%rd43];"));
        self.registers[to] = (ARRAY..ARRAY + ARRAY_WORDS).map(Origin::Word).collect();
    }

    fn divide(&mut self) {
        let (to, from) = (self.pointer(), self.pointer());
        self.say("cvt.u64.u32 %rd44, %r0; cvt.u64.u32 %rd45, %r1; mul.lo.u64 %rd45, %rd45, %rd45;");
        self.say("mul.lo.u64 %rd44, %rd44, %rd45; add.u64 %rd45, %rd45, 3;");
        self.say("div.u64 %rd46, %rd44, %rd45; shl.b64 %rd46, %rd46, 3;");
        self.say(&format!("add.u64 %rd{to}, %rd{from}, %rd46;"));
        self.registers[to] = self.registers[from].clone();
    }

    fn index_from_memory(&mut self) {
        let (to, from) = (self.pointer(), self.pointer());
        self.say("ld.global.u32 %r16, [%rd20];");
        self.say(&format!("mad.wide.u32 %rd{to}, %r16, 8, %rd{from};"));
        self.registers[to] = self.registers[from].clone();
    }

    /// An address that is written into the code, as programs do that compile for one launch.
    fn literal(&mut self) {
        let to = self.pointer();
        self.say(&format!("mov.u64 %rd{to}, 0x7f31a4c00000;"));
        self.registers[to] = [Origin::Loaded].into();
    }

    fn store(&mut self) {
        let from = self.pointer();
        let by = match self.random.usize(0..5) {
            0 => "st.global.u32 [A], %r3;",
            1 => "red.global.add.u32 [A], %r3;",
            2 => "atom.global.add.u32 %r20, [A], %r3; add.u32 %r3, %r3, %r20;",
            3 => "cvta.global.u64 %rd50, A; st.u32 [%rd50], %r3;",
            _ => "and.b64 %rd51, A, -16; st.global.v4.u32 [%rd51], {%r3, %r3, %r3, %r3};",
        };
        self.say(&by.replace('A', &format!("%rd{from}")));
        self.stored.extend(self.registers[from].clone());
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a kernel that runs uses an address that it was not given.
    use super::*;

    #[test]
    fn a_seed_is_a_kernel_and_one_that_runs_has_no_address_of_its_own() {
        let texts: BTreeSet<String> = (0..200).map(|seed| draw(seed, DrawnFor::Running).text).collect();
        assert_eq!(texts.len(), 200);
        assert!(texts.iter().all(|text| !text.contains("0x7f31a4c00000")));
        let read: Vec<DrawnKernel> = (0..200).map(|seed| draw(seed, DrawnFor::Reading)).collect();
        assert!(read.iter().any(|kernel| kernel.text.contains("0x7f31a4c00000")));
        assert!(read.iter().all(|kernel| !kernel.stored.is_empty()));
        assert_eq!(draw(7, DrawnFor::Running).text, draw(7, DrawnFor::Running).text);
    }
}
