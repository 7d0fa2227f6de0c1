//! The opcodes that are known: one line each.

use super::vocabulary::Action;
use super::vocabulary::File::{General, Uniform};
use super::vocabulary::Shape;
use super::vocabulary::Space::{self, Generic, Global, Local, Shared};

/// One opcode.
#[derive(Debug)]
pub(super) struct OpcodeRow {
    pub(super) code: u16,
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) action: Action,
}

/// The row of an opcode with its form.
pub(super) fn row(code: u16, sm: u32) -> Option<&'static OpcodeRow> {
    let of = |rows: &'static [OpcodeRow], code| {
        rows.binary_search_by_key(&code, |row| row.code).ok().map(|at| &rows[at])
    };
    let newer = if sm >= 100 { of(NEWER, code & 0x1ff) } else { None };
    of(EXACT, code).or(newer).or_else(|| of(ARITHMETIC, code & 0x1ff))
}

macro_rules! rows {
    ($($code:literal $name:literal $shape:ident$(($($of:tt)*))? $action:ident$(($space:ident))?;)*) => {
        &[$(OpcodeRow {
            code: $code,
            name: $name,
            shape: Shape::$shape$(($($of)*))?,
            action: Action::$action$((Space::$space))?,
        }),*]
    };
}

/// Arithmetic, by the lower nine bits of the code; the three bits above are the form. The letters
/// say which operands there are. They come in the order of their codes.
const ARITHMETIC: &[OpcodeRow] = rows! {
    0x002 "MOV" Move(General) Choice;
    0x006 "VOTE" General("d") Number;
    0x007 "SEL" General("dAB") Choice;
    0x008 "FSEL" General("dAB") Choice;
    0x009 "FMNMX" General("dAB") Choice;
    0x00a "FSET" General("dAB") Float;
    0x00b "FSETP" General("AB") Nothing;
    0x00c "ISETP" General("AB") Nothing;
    0x00f "VIMNMX3" General("dABC") Choice;
    0x010 "IADD3" General("dABC") Sum;
    0x011 "LEA" Lea(false) ShiftedSum;
    0x012 "LOP3" General("dABC") Bits;
    0x013 "IABS" General("dB") Mix;
    0x016 "PRMT" General("dABC") Mix;
    0x017 "IMNMX" General("dAB") Choice;
    0x019 "SHF" General("dABC") Shift;
    0x01a "SGXT" General("dAB") Mix;
    0x01b "BMSK" General("dAB") Mix;
    0x020 "FMUL" General("dAB") Float;
    0x021 "FADD" Second Float;
    0x023 "FFMA" General("dABC") Float;
    0x024 "IMAD" General("dABC") Product;
    0x025 "IMAD" General("DABc") Product;
    0x026 "IDP" General("dABC") Mix;
    0x027 "IMAD" General("dABc") UpperProduct;
    0x028 "DMUL" General("Dab") Float;
    0x029 "DADD" General("Dac") Float;
    0x02a "DSETP" General("ac") Nothing;
    0x02b "DFMA" General("Dabc") Float;
    0x030 "HADD2" Second Float;
    0x031 "HFMA2" General("dABC") Float;
    0x032 "HMUL2" General("dAB") Float;
    0x033 "HSET2" General("dAB") Float;
    0x034 "HSETP2" SecondOnly Nothing;
    0x035 "HFMA2" General("dABC") Float;
    0x036 "VIADD" General("dAB") Sum;
    0x03e "F2FP" General("dABC") Float;
    0x040 "HMNMX2" General("dAB") Float;
    0x043 "F2IP" General("dABC") Float;
    0x045 "I2FP" General("dB") Float;
    0x046 "VIADDMNMX" General("dABC") Mix;
    0x048 "VIMNMX" General("dAB") Choice;
    0x049 "FFMA2" General("Dabc") Float;
    0x04a "FMUL2" General("Dab") Float;
    0x04b "FADD2" Refused Float;
    0x082 "UMOV" Move(Uniform) Choice;
    0x087 "USEL" Uniform("dAB") Choice;
    0x08c "UISETP" Uniform("AB") Nothing;
    0x090 "UIADD3" Uniform("dABC") Sum;
    0x091 "ULEA" Lea(true) ShiftedSum;
    0x092 "ULOP3" Uniform("dABC") Bits;
    0x096 "UPRMT" Uniform("dABC") Mix;
    0x097 "UIADD3" Uniform("Dabc") Sum;
    0x099 "USHF" Uniform("dABC") Shift;
    0x09a "USGXT" Uniform("dAB") Mix;
    0x09b "UBMSK" Uniform("dAB") Mix;
    0x0a4 "UIMAD" Uniform("dABC") Product;
    0x0a5 "UIMAD" Uniform("DABc") Product;
    0x0a6 "UIMAD" Uniform("dABc") UpperProduct;
    0x0a7 "UIMAD" Uniform("dABc") UpperProduct;
    0x0bd "UFLO" Uniform("dB") Mix;
    0x0be "UBREV" Uniform("dB") Mix;
    0x0bf "UPOPC" Uniform("dB") Mix;
    0x100 "FLO" General("dB") Mix;
    0x101 "BREV" General("dB") Mix;
    0x102 "FCHK" General("AB") Nothing;
    0x104 "F2F" General("dB") Float;
    0x105 "F2I" General("dB") Float;
    0x106 "I2F" General("dB") Float;
    0x107 "FRND" General("dB") Float;
    0x108 "MUFU" General("dB") Float;
    0x109 "POPC" General("dB") Mix;
    0x110 "F2F" Convert Float;
    0x111 "F2I" Convert Float;
    0x112 "I2F" Convert Float;
    0x113 "FRND" General("Db") Float;
};

/// Arithmetic that has another meaning from sm_100 on.
const NEWER: &[OpcodeRow] = rows! {
    0x017 "IMNMX" Wider("dAB", 74, true) Choice;
    0x035 "IADD" Wider("dAB", 73, false) Sum;
    0x04a "FMUL2" Packed Float;
    0x051 "UFSEL" Uniform("dAB") Choice;
    0x053 "UFSETP" Uniform("AB") Nothing;
    0x05a "UI2F" Uniform("dB") Float;
    0x05c "UF2I" Uniform("dB") Float;
};

/// Opcodes with forms of their own, by all twelve bits. They come in the order of their codes.
const EXACT: &[OpcodeRow] = rows! {
    0x237 "IMMA" Matrix Number;
    0x23c "HMMA" Matrix Number;
    0x23f "DMMA" Matrix Number;
    0x2ca "R2UR" ToUniform Choice;
    0x2cc "CREDUX" ToUniform Choice;
    0x31c "B2R" Flag Number;
    0x343 "CALL" Target Jump;
    0x348 "WARPSYNC" Target Jump;
    0x34e "LEPC" Wide Number;
    0x352 "RPCMOV" Refused Nothing;
    0x35d "NANOSLEEP" Bare Nothing;
    0x380 "LD" Memory(Generic) Load(Generic);
    0x381 "LDG" Memory(Global) Load(Global);
    0x385 "ST" Memory(Generic) Store(Generic);
    0x386 "STG" Memory(Global) Store(Global);
    0x387 "STL" Memory(Local) Store(Local);
    0x388 "STS" Memory(Shared) Store(Shared);
    0x389 "SHFL" Shuffle Choice;
    0x38a "ATOM" Atomic(Generic, false) Atomic(Generic);
    0x38b "ATOM" Atomic(Generic, true) Atomic(Generic);
    0x38c "ATOMS" Atomic(Shared, false) Atomic(Shared);
    0x38d "ATOMS" Atomic(Shared, true) Atomic(Shared);
    0x3a1 "MATCH" Flag Number;
    0x3a3 "ATOMG" Atomic(Global, false) Atomic(Global);
    0x3a8 "ATOMG" Atomic(Global, false) Atomic(Global);
    0x3a9 "ATOMG" Atomic(Global, true) Atomic(Global);
    0x3aa "QSPC" Flag Number;
    0x3b4 "UTMALDG" Tensor TensorLoad;
    0x3b5 "UTMASTG" Tensor TensorStore;
    0x3c2 "R2UR" ToUniformOld Choice;
    0x3c4 "REDUX" ToUniformOld Mix;
    0x3c6 "FENCE" Bare Nothing;
    0x3ca "UGETNEXTWORKID" Bare Nothing;
    0x402 "MOV" WideNumber(General) Choice;
    0x407 "SEL" WidePair(General) Choice;
    0x482 "UMOV" WideNumber(Uniform) Choice;
    0x487 "USEL" WidePair(Uniform) Choice;
    0x51d "BAR" Bare Nothing;
    0x540 "CCTL" Cache Nothing;
    0x547 "BRA" Target Jump;
    0x589 "SHFL" Shuffle Choice;
    0x5a7 "SYNCS" Barrier Number;
    0x5ab "CGAERRBAR" Bare Nothing;
    0x5b2 "SYNCS" UniformBarrier Number;
    0x5b4 "UTMALDG" Tensor TensorLoad;
    0x5b5 "UTMASTG" Tensor TensorStore;
    0x5e3 "UTCATOMSWS" UniformFlag Number;
    0x607 "SEL" WidePair(General) Choice;
    0x7ac "LDCU" Constant(true) Constant;
    0x802 "MOV" Move(General) Choice;
    0x803 "P2R" Predicates Mix;
    0x804 "R2P" FromPredicates Nothing;
    0x805 "CS2R" Special Number;
    0x806 "VOTE" Vote Number;
    0x81c "PLOP3" Bare Nothing;
    0x82d "PREEXIT" Bare Nothing;
    0x82e "ACQBULK" Bare Nothing;
    0x82f "ELECT" Elect Number;
    0x83b "LDSM" Rows Load(Shared);
    0x844 "STSM" RowsStore Store(Shared);
    0x883 "UP2UR" UniformPredicates Number;
    0x886 "VOTEU" UniformVote Number;
    0x89c "UPLOP3" Bare Nothing;
    0x918 "NOP" Bare Nothing;
    0x919 "S2R" Flag Number;
    0x91a "DEPBAR" Bare Nothing;
    0x91b "ENDCOLLECTIVE" Bare Nothing;
    0x91d "BAR" BlockBarrier Nothing;
    0x941 "BSYNC" Target Jump;
    0x942 "BREAK" Bare Nothing;
    0x944 "CALL" Target Jump;
    0x945 "BSSY" Target Jump;
    0x946 "YIELD" Bare Nothing;
    0x947 "BRA" Target Jump;
    0x948 "WARPSYNC" Bare Nothing;
    0x949 "BRX" Target Jump;
    0x94d "EXIT" Target Jump;
    0x94e "LEPC" Wide Number;
    0x950 "RET" Target Jump;
    0x95b "KILL" Target Jump;
    0x95c "BPT" Target Jump;
    0x95d "NANOSLEEP" Bare Nothing;
    0x980 "LD" Memory(Generic) Load(Generic);
    0x981 "LDG" Memory(Global) Load(Global);
    0x983 "LDL" Memory(Local) Load(Local);
    0x984 "LDS" Memory(Shared) Load(Shared);
    0x985 "ST" Memory(Generic) Store(Generic);
    0x986 "STG" Memory(Global) Store(Global);
    0x987 "STL" Memory(Local) Store(Local);
    0x988 "STS" Memory(Shared) Store(Shared);
    0x989 "SHFL" Shuffle Choice;
    0x98a "ATOM" Atomic(Generic, false) Atomic(Generic);
    0x98b "ATOM" Atomic(Generic, true) Atomic(Generic);
    0x98c "ATOMS" Atomic(Shared, false) Atomic(Shared);
    0x98d "ATOMS" Atomic(Shared, true) Atomic(Shared);
    0x98e "RED" Reduction Store(Global);
    0x98f "CCTL" Cache Nothing;
    0x992 "MEMBAR" Bare Nothing;
    0x9a2 "ATOM" Atomic(Generic, false) Atomic(Generic);
    0x9a3 "ATOMG" Atomic(Global, false) Atomic(Global);
    0x9a6 "REDG" Reduction Store(Global);
    0x9a7 "SYNCS" Barrier Number;
    0x9a8 "ATOMG" Atomic(Global, false) Atomic(Global);
    0x9a9 "ATOMG" Atomic(Global, true) Atomic(Global);
    0x9ab "ERRBAR" Bare Nothing;
    0x9af "LDGDEPBAR" Bare Nothing;
    0x9b0 "ARRIVES" Arrive Nothing;
    0x9b1 "SYNCS" Bare Nothing;
    0x9b7 "UTMACMDFLUSH" Bare Nothing;
    0x9b9 "UTMACCTL" Tensor Nothing;
    0x9c3 "S2UR" UniformFlag Number;
    0x9c5 "WARPGROUP" Bare Nothing;
    0x9c7 "UCGABAR_ARV" Bare Nothing;
    0x9c8 "USETMAXREG" Bare Nothing;
    0x9c9 "USETSHMSZ" Bare Nothing;
    0x9f0 "HGMMA" Warpgroup Number;
    0xab9 "ULDC" Constant(true) Constant;
    0xabb "ULDC" Constant(true) Constant;
    0xb1d "BAR" BlockBarrier Nothing;
    0xb82 "LDC" Constant(false) Constant;
    0xc87 "USEL" WidePair(Uniform) Choice;
    0xdae "LDGSTS" Copy ToShared;
    0xdbd "STAS" Remote Store(Shared);
    0xdc7 "UCGABAR_WAIT" Bare Nothing;
    0xf89 "SHFL" Shuffle Choice;
    0xf8c "ATOMS" Atomic(Shared, false) Atomic(Shared);
    0xfae "LDGSTS" Copy ToShared;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_finds_each_row() {
        for rows in [ARITHMETIC, NEWER, EXACT] {
            assert!(rows.windows(2).all(|pair| pair[0].code < pair[1].code));
        }
    }
}
