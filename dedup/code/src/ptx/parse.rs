//! From tokens to functions and statements. What is not known is refused with its line, and no part
//! of a text is passed over but debuggers' sections and initial values.

use super::lex::Token;
use super::operands::operands;
use super::syntax::{Module, Obscure, PtxFunction, PtxParameter, PtxStatement, StateSpace};

type ParseResult<T> = Result<T, Obscure>;

/// Reads a whole text.
pub(super) fn module<'a>(tokens: &[Token<'a>]) -> ParseResult<Module<'a>> {
    let mut module = Module::default();
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        rest = if first.is(".section") {
            let open = position(rest, "{").ok_or(Obscure(first.line))?;
            &rest[block(&rest[open..])? + open..]
        } else {
            declaration(&mut module, rest)?
        };
    }
    Ok(module)
}

/// One declaration of the module; the tokens behind it.
fn declaration<'t, 'a>(module: &mut Module<'a>, tokens: &'t [Token<'a>]) -> ParseResult<&'t [Token<'a>]> {
    let line = Obscure(tokens[0].line);
    let is_function = |token: &Token| token.is(".entry") || token.is(".func");
    let end = tokens.iter().position(|token| token.is(";") || token.is("{")).ok_or(line)?;
    let Some(kind) = tokens[..end].iter().position(is_function) else {
        let end = end_of_initial_value(tokens).ok_or(line)?;
        variable(&tokens[..end], |name, space| {
            module.variables.insert(name, space);
        })?;
        return Ok(&tokens[end + 1..]);
    };
    let mut function = head(tokens[kind].is(".entry"), &tokens[kind + 1..end])?;
    let mut next = end + 1;
    if tokens[end].is("{") {
        next = end + block(&tokens[end..])?;
        function.has_body = true;
        function.obscure = body(&mut function, &tokens[end + 1..next - 1]).err();
    }
    module.functions.push(function);
    Ok(&tokens[next..])
}

/// The tokens up to the brace that closes the first one, with both.
fn block(tokens: &[Token]) -> ParseResult<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" => depth += 1,
            "}" if depth == 1 => return Ok(at + 1),
            "}" => depth -= 1,
            _ => {}
        }
    }
    Err(Obscure(tokens[0].line))
}

/// A semicolon that is in no braces.
fn end_of_initial_value(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0_i32;
    tokens.iter().position(|token| {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        depth == 0 && token.is(";")
    })
}

fn position(tokens: &[Token], text: &str) -> Option<usize> {
    tokens.iter().position(|token| token.is(text))
}

/// `(results) name (parameters) directives`: results and parameters may be missing.
fn head<'a>(is_kernel: bool, tokens: &[Token<'a>]) -> ParseResult<PtxFunction<'a>> {
    let mut function = PtxFunction { is_kernel, ..PtxFunction::default() };
    let (results, rest) = parenthesis(tokens)?;
    function.results = parameters(results)?.iter().map(|parameter| parameter.name).collect();
    let (name, rest) = rest.split_first().ok_or(Obscure(0))?;
    function.name = name.text;
    function.parameters = parameters(parenthesis(rest)?.0)?;
    Ok(function)
}

/// The tokens in the parentheses at the start, if there are some, and those behind them.
fn parenthesis<'t, 'a>(tokens: &'t [Token<'a>]) -> ParseResult<(&'t [Token<'a>], &'t [Token<'a>])> {
    match tokens.first() {
        Some(first) if first.is("(") => {
            let end = position(tokens, ")").ok_or(Obscure(first.line))?;
            Ok((&tokens[1..end], &tokens[end + 1..]))
        }
        _ => Ok((&[], tokens)),
    }
}

/// Each lies at the next multiple of its alignment.
fn parameters<'a>(tokens: &[Token<'a>]) -> ParseResult<Vec<PtxParameter<'a>>> {
    let mut found = Vec::new();
    let mut end = 0_u32;
    for declared in tokens.split(|token| token.is(",")).filter(|declared| !declared.is_empty()) {
        let Declared { name, bytes, align, .. } = declared_in(declared)?;
        let line = Obscure(declared[0].line);
        let offset = end.checked_next_multiple_of(align).ok_or(line)?;
        end = offset.checked_add(bytes).ok_or(line)?;
        found.push(PtxParameter { name, offset, bytes });
    }
    Ok(found)
}

struct Declared<'a> {
    name: &'a str,
    space: Option<StateSpace>,
    bytes: u32,
    align: u32,
}

/// `.param .align 8 .b8 name[24]`, up to a sign of an initial value.
fn declared_in<'a>(tokens: &[Token<'a>]) -> ParseResult<Declared<'a>> {
    let line = Obscure(tokens.first().map_or(0, |token| token.line));
    let (mut name, mut space, mut size, mut align) = (None, None, None, None);
    let mut count = 1_u32;
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        match token.text {
            "=" => break,
            ".align" if rest.as_slice().first().is_some_and(|next| number(next).is_some()) => {
                let given = rest.next().and_then(number).filter(|align| *align > 0);
                // The alignment of what a pointer points to stands behind `.ptr`, behind the type.
                align = align.or(if size.is_none() { given } else { None });
            }
            "[" => {
                let length = rest.next().filter(|length| !length.is("]"));
                count = count.checked_mul(length.map_or(Some(0), number).ok_or(line)?).ok_or(line)?;
            }
            text if text.starts_with('.') => {
                space = space.or(space_of(&text[1..]));
                size = size.or(size_of(&text[1..]));
            }
            "]" => {}
            text if name.is_none() => name = Some(text),
            _ => return Err(line),
        }
    }
    let size = size.ok_or(line)?;
    let bytes = size.checked_mul(count).ok_or(line)?;
    Ok(Declared { name: name.ok_or(line)?, space, bytes, align: align.unwrap_or(size) })
}

fn number(token: &Token) -> Option<u32> {
    token.text.parse().ok()
}

/// The bytes of a type. Predicates and references to textures have none.
pub(super) fn size_of(name: &str) -> Option<u32> {
    match name {
        "b8" | "u8" | "s8" => Some(1),
        "b16" | "u16" | "s16" | "f16" | "bf16" => Some(2),
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => Some(4),
        "b64" | "u64" | "s64" | "f64" | "f32x2" => Some(8),
        "b128" => Some(16),
        _ => None,
    }
}

/// The memory that a word of a declaration or an opcode names.
pub(super) fn space_of(name: &str) -> Option<StateSpace> {
    match name {
        "global" => Some(StateSpace::Global),
        "const" => Some(StateSpace::Constant),
        "shared" | "shared::cta" | "shared::cluster" => Some(StateSpace::Shared),
        "local" => Some(StateSpace::Local),
        "param" | "param::entry" | "param::func" => Some(StateSpace::Parameter),
        _ => None,
    }
}

/// The variables of one statement, `.global .align 4 .b8 a[4], b = 1`.
fn variable<'a>(tokens: &[Token<'a>], mut insert: impl FnMut(&'a str, StateSpace)) -> ParseResult<()> {
    let Some(first) = tokens.first() else { return Ok(()) };
    let is_other = |word: &str| [".pragma", ".alias", ".maxnreg"].contains(&word);
    if is_other(first.text) {
        // Another name for a function: a call of it is not known, and so refused.
        return Ok(());
    }
    let end = position(tokens, "=").unwrap_or(tokens.len());
    let mut space = None;
    for (at, part) in tokens[..end].split(|token| token.is(",")).enumerate() {
        let line = Obscure(first.line);
        let name = if at == 0 {
            let declared = declared_in(part)?;
            space = declared.space;
            declared.name
        } else {
            part.first().ok_or(line)?.text
        };
        insert(name, space.ok_or(line)?);
    }
    Ok(())
}

/// The statements between the braces of a function. Inner braces are scopes: a name has one meaning
/// in all of them, which can only add to what it may hold.
fn body<'a>(function: &mut PtxFunction<'a>, tokens: &[Token<'a>]) -> ParseResult<()> {
    let mut rest = tokens;
    while let Some(first) = rest.first() {
        let is_label = rest.get(1).is_some_and(|next| next.is(":"));
        if first.is("{") || first.is("}") || first.is(";") {
            rest = &rest[1..];
        } else if is_label {
            rest = &rest[2..];
        } else {
            let end = position(rest, ";").ok_or(Obscure(first.line))?;
            statement(function, &rest[..end])?;
            rest = &rest[end + 1..];
        }
    }
    Ok(())
}

fn statement<'a>(function: &mut PtxFunction<'a>, tokens: &[Token<'a>]) -> ParseResult<()> {
    let line = tokens[0].line;
    match tokens[0].text {
        // The types of a call through a register, and lists of labels. The call itself is refused.
        ".pragma" | ".callprototype" | ".branchtargets" | ".calltargets" => Ok(()),
        ".reg" => {
            registers(function, &tokens[1..]);
            Ok(())
        }
        text if text.starts_with('.') => {
            let variables = &mut function.variables;
            variable(tokens, |name, space| {
                variables.insert(name, space);
            })
        }
        _ => {
            let tokens = without_predicate(tokens).ok_or(Obscure(line))?;
            let (opcode, rest) = tokens.split_first().ok_or(Obscure(line))?;
            let operands = operands(rest).ok_or(Obscure(line))?;
            let opcode = opcode.text.split('.').collect();
            function.statements.push(PtxStatement { line, opcode, operands });
            Ok(())
        }
    }
}

/// `@p` or `@!p` in front of an instruction, which may then do nothing.
fn without_predicate<'t, 'a>(tokens: &'t [Token<'a>]) -> Option<&'t [Token<'a>]> {
    if !tokens.first()?.text.starts_with('@') {
        return Some(tokens);
    }
    let mark = usize::from(tokens[0].is("@")) + usize::from(tokens.get(1)?.is("!"));
    tokens.get(1 + mark..)
}

/// `.b64 %rd<13>` or `.pred p, q`. Registers with a percent sign need no entry.
fn registers<'a>(function: &mut PtxFunction<'a>, tokens: &[Token<'a>]) {
    let is_name = |token: &&Token| !token.text.starts_with(['.', '%', ',', '<', '>']);
    function.registers.extend(tokens.iter().filter(is_name).map(|token| token.text));
}
