//! Hazard (wrong result): the compiler carries a pointer to a store in a way that the analysis of
//! machine code does not follow, and the verdict does not name where it came from.
//!
//! Kernels are drawn with what each register may hold: pointers of parameters, or pointers that
//! were loaded. They pass pointers through sums, choices, branches, loops, shared and local memory,
//! other lanes, tables of parameters and subroutines. The assembler compiles them for each
//! architecture; each pointer that a store may go through must be in the verdict.
//!
//! Needs `TEST_PTXAS`, the path of the assembler. `TEST_PROGRAMS` says how many
//! kernels are drawn. Without the assembler the test skips itself.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use wm_code::flow::judge;
use wm_code::image::Cubin;
use wm_code::verdict::{CodeVerdict, Effects};

/// Registers that hold pointers.
const POINTERS: usize = 8;
/// Parameters that are pointers, words 0 to 5; word 6 is a table of pointers, word 7 two numbers.
const PARAMETERS: usize = 6;
const TABLE: u32 = 6;
/// The first word of an array of pointers among the parameters, and its length.
const ARRAY: u32 = 8;
const ARRAY_WORDS: u32 = 4;

/// Where a pointer may come from: a word of the parameters, or the memory of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Word(u32),
    Loaded,
}

type Origins = BTreeSet<Origin>;

/// A kernel while it is drawn.
struct Drawn {
    random: fastrand::Rng,
    text: String,
    labels: usize,
    registers: Vec<Origins>,
    shared: Origins,
    local: Vec<Origins>,
    stored: Origins,
}

impl Drawn {
    fn kernel(seed: u64) -> Drawn {
        let registers = (0..POINTERS).map(|at| [Origin::Word((at % PARAMETERS) as u32)].into()).collect();
        let mut drawn = Drawn {
            random: fastrand::Rng::with_seed(seed),
            text: String::new(),
            labels: 0,
            registers,
            shared: Origins::new(),
            local: vec![Origins::new(); 4],
            stored: Origins::new(),
        };
        drawn.begin();
        for _ in 0..drawn.random.usize(4..30) {
            drawn.step();
        }
        drawn.store();
        drawn.say("ret;\n}");
        drawn
    }

    fn begin(&mut self) {
        let limit = [24, 32, 64][self.random.usize(0..3)];
        let _ = write!(
            self.text,
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry drawn(\
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
        self.say("ld.param.u32 %r0, [n]; ld.param.u32 %r1, [m]; mov.u32 %r2, %tid.x;");
        self.say("mov.u64 %rd21, own; mov.u64 %rd22, both;");
        self.say("mad.wide.u32 %rd23, %r2, 8, %rd22;");
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
            15 => self.literal(),
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
        self.say(&format!("st.global.u32 [%rd{to}], %r2;"));
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
        self.say(&format!("ld.shared.u64 %rd{to}, [%rd23+8]; bar.sync 0;"));
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
            0 => "st.global.u32 [A], %r2;",
            1 => "red.global.add.u32 [A], %r2;",
            2 => "atom.global.add.u32 %r20, [A], %r2; add.u32 %r2, %r2, %r20;",
            3 => "cvta.global.u64 %rd50, %rdN; st.u32 [%rd50], %r2;",
            _ => "st.global.v4.u32 [A], {%r2, %r2, %r2, %r2};",
        };
        let at = format!("%rd{from}");
        self.say(&by.replace('A', &at).replace("%rdN", &at));
        self.stored.extend(self.registers[from].clone());
    }
}

#[test]
fn each_pointer_of_a_store_is_in_the_verdict() {
    let Some(assembler) = std::env::var_os("TEST_PTXAS").map(PathBuf::from) else {
        return hazards::skip("needs ptxas");
    };
    let programs = std::env::var("TEST_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let folder = std::env::temp_dir().join(format!("wm-code-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (mut decided, mut all) = (0, 0);
    for seed in 0..programs.unwrap_or(40) {
        let drawn = Drawn::kernel(seed);
        for sm in [80, 90, 100, 120] {
            let cubin = assemble(&assembler, &folder, &drawn.text, sm);
            let cubin = Cubin::parse(&cubin).unwrap();
            let kernel = cubin.kernels().next().unwrap().unwrap();
            all += 1;
            if let CodeVerdict::Decided(effects) = judge(&kernel) {
                decided += 1;
                check(&drawn, &effects, seed, sm);
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    eprintln!("{decided} of {all} decided");
    assert!(decided * 2 > all, "{decided} of {all} decided");
}

fn assemble(assembler: &Path, folder: &Path, text: &str, sm: u32) -> Vec<u8> {
    let (from, to) = (folder.join("drawn.ptx"), folder.join("drawn.cubin"));
    std::fs::write(&from, text).unwrap();
    let mut command = Command::new(assembler);
    command.arg(format!("-arch=sm_{sm}")).arg("-o").arg(&to).arg(&from);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(to).unwrap()
}

/// What the verdict says must contain what the kernel may do.
fn check(drawn: &Drawn, effects: &Effects, seed: u64, sm: u32) {
    let missed: Vec<_> = drawn
        .stored
        .iter()
        .filter(|origin| match origin {
            Origin::Word(word) => !effects
                .stores
                .iter()
                .any(|source| source.words.contains(*word) || source.offsets.contains(*word)),
            Origin::Loaded => !effects.stores.iter().any(|source| source.memory && is_free(source)),
        })
        .collect();
    let text = &drawn.text;
    assert!(missed.is_empty(), "seed {seed}, sm_{sm}: {missed:?} not in {effects:?}\n{text}");
}

/// At a launch with addresses in all pointers, the source says that a loaded pointer may be used.
fn is_free(source: &wm_code::verdict::AddressSource) -> bool {
    let pointer = |word: &u32| *word <= TABLE || *word >= ARRAY;
    let bases = source.words.iter().filter(pointer).count();
    bases != 1 || source.offsets.iter().any(|word| pointer(&word))
}
