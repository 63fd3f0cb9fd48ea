//! Filters that are short to load and quick to ask.
//!
//! The library compares the number of a call with one table entry after the other. Here neighbours with the same
//! answer become one range, and the ranges a search tree: a third of the instructions, and some seven comparisons
//! for a call instead of hundreds. The kernel pays for each instruction when a filter is loaded, and goes through
//! it once for every call number there is.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, sock_filter};

use super::{Rules, arch, errno};

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// What is done with a range of numbers.
#[derive(Debug, PartialEq)]
enum Leaf {
    /// The same, whatever the arguments.
    Answer(u32),
    /// That depends on the arguments.
    Asks(BpfProgram),
}

/// From this number on, up to the next range.
type Range = (u32, Leaf);

/// The same filter as the library's for these rules and answers.
pub(super) fn compile(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let mut program: BpfProgram =
        SeccompFilter::new(Rules::new(), otherwise.clone(), matched.clone(), arch())?.try_into()?;
    // The library's look at the architecture stays; behind it stands its answer to a filter without rules.
    program.pop();
    program.push(sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 });
    program.extend(tree(&ranges(rules, otherwise.into(), matched.into())));
    Ok(program)
}

/// The other way round: everything is allowed but what the rules say, the calls that are `absent`, and all numbers from
/// `newer` on. Another entry than this processor's own is refused, not fatal.
pub(super) fn deny(
    refused: Rules,
    absent: &[c_long],
    newer: c_long,
) -> Result<BpfProgram, seccompiler::Error> {
    const OTHER_ENTRY: u32 = 0x4000_0000;
    let [allow, refuse, lack] =
        [SeccompAction::Allow, errno(libc::EPERM), errno(libc::ENOSYS)].map(u32::from);
    let mut program: BpfProgram =
        SeccompFilter::new(Rules::new(), SeccompAction::Allow, errno(libc::EPERM), arch())?.try_into()?;
    program.pop();
    for instruction in program.iter_mut().filter(|i| i.code == RETURN) {
        instruction.k = refuse;
    }
    program.push(sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 });
    let mut leaves: BTreeMap<u32, Leaf> = leaves(refused, allow, refuse).collect();
    leaves.extend(absent.iter().filter_map(|nr| Some((u32::try_from(*nr).ok()?, Leaf::Answer(lack)))));
    let mut ranges = lay(leaves, allow);
    if let Ok(newer) = u32::try_from(newer) {
        ranges.retain(|(from, _)| *from < newer);
        ranges.push((newer, Leaf::Answer(lack)));
    }
    // A number that is none, as a tracer leaves it, stays one.
    ranges.extend([(OTHER_ENTRY, Leaf::Answer(refuse)), (1 << 31, Leaf::Answer(allow))]);
    program.extend(tree(&ranges));
    Ok(program)
}

fn ranges(rules: Rules, otherwise: u32, matched: u32) -> Vec<Range> {
    lay(leaves(rules, otherwise, matched), otherwise)
}

/// What is done with single numbers, in their order.
fn leaves(rules: Rules, otherwise: u32, matched: u32) -> impl Iterator<Item = Range> {
    // A negative number is none that the kernel knows.
    let known = rules.into_iter().filter_map(|(nr, rules)| Some((u32::try_from(nr).ok()?, rules)));
    known.map(move |(nr, rules)| {
        let asked = !rules.is_empty();
        (nr, if asked { Leaf::Asks(asks(rules, otherwise, matched)) } else { Leaf::Answer(matched) })
    })
}

fn lay(leaves: impl IntoIterator<Item = Range>, otherwise: u32) -> Vec<Range> {
    let mut ranges: Vec<Range> = vec![(0, Leaf::Answer(otherwise))];
    let mut push = |from: u32, leaf: Leaf| {
        // What would begin here has no number of its own.
        ranges.pop_if(|(start, _)| *start == from);
        if ranges.last().is_none_or(|(_, before)| *before != leaf) {
            ranges.push((from, leaf));
        }
    };
    for (nr, leaf) in leaves {
        push(nr, leaf);
        push(nr.saturating_add(1), Leaf::Answer(otherwise));
    }
    ranges
}

/// One rule after the other; the first that holds decides.
fn asks(rules: Vec<seccompiler::SeccompRule>, otherwise: u32, matched: u32) -> BpfProgram {
    let mut program = BpfProgram::new();
    for rule in rules {
        program.extend(BpfProgram::from(rule));
        program.push(answer(matched));
    }
    program.push(answer(otherwise));
    program
}

fn tree(ranges: &[Range]) -> BpfProgram {
    match ranges {
        [] => BpfProgram::new(),
        [(_, Leaf::Answer(action))] => vec![answer(*action)],
        [(_, Leaf::Asks(program))] => program.clone(),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let (low, high, from) = (tree(low), tree(high), high.first().map_or(0, |(from, _)| *from));
            let node = sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 0, k: from };
            let mut program = match u8::try_from(low.len()) {
                Ok(over) => vec![sock_filter { jt: over, ..node }],
                // A comparison reaches 255 instructions far, a jump everywhere.
                Err(_) => vec![
                    sock_filter { jf: 1, ..node },
                    sock_filter { code: JUMP, jt: 0, jf: 0, k: u32::try_from(low.len()).unwrap_or(u32::MAX) },
                ],
            };
            program.extend(low);
            program.extend(high);
            program
        }
    }
}

fn answer(action: u32) -> sock_filter {
    sock_filter { code: RETURN, jt: 0, jf: 0, k: action }
}

/// What the kernel would answer: the instructions that both compilers use, and no others.
#[cfg(test)]
pub(super) fn ask(program: &[sock_filter], arch: u32, nr: u32, args: [u64; 6]) -> u32 {
    let mut data = [0_u8; 64];
    data[..4].copy_from_slice(&nr.to_ne_bytes());
    data[4..8].copy_from_slice(&arch.to_ne_bytes());
    for (n, arg) in args.iter().enumerate() {
        data[16 + 8 * n..24 + 8 * n].copy_from_slice(&arg.to_ne_bytes());
    }
    let (mut at, mut word) = (0, 0);
    loop {
        let i = &program[at];
        at += 1;
        let branch = |yes: bool| usize::from(if yes { i.jt } else { i.jf });
        match i.code {
            0x20 => word = u32::from_ne_bytes(data[i.k as usize..i.k as usize + 4].try_into().unwrap()),
            0x54 => word &= i.k,
            0x05 => at += i.k as usize,
            0x15 => at += branch(word == i.k),
            0x25 => at += branch(word > i.k),
            0x35 => at += branch(word >= i.k),
            0x06 => return i.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{confined_rules, table};
    use super::*;
    use crate::launch::Held;

    /// Arguments around everything that a rule names.
    fn arguments() -> Vec<[u64; 6]> {
        let words = [
            0,
            1,
            2,
            3,
            5,
            6,
            10,
            16,
            17,
            4,
            0x8_0801,
            0x5412,
            0x541c,
            0x541d,
            0x5423,
            0x1000_0000,
            0x0004_0000,
        ];
        let high = |w: u64| [w, w | 1 << 40];
        let mut all = Vec::new();
        for a in words.into_iter().flat_map(high).chain([0xffff_ffff, u64::MAX]) {
            for b in words.into_iter().flat_map(high) {
                for c in [0, 1 << 32, 6, 17, 132, 15] {
                    all.push([a, b, c, 0, 0, 0]);
                }
            }
        }
        all
    }

    fn same(rules: &Rules, otherwise: SeccompAction, matched: SeccompAction) -> (usize, usize) {
        let long: BpfProgram = SeccompFilter::new(rules.clone(), otherwise.clone(), matched.clone(), arch())
            .unwrap()
            .try_into()
            .unwrap();
        let short = compile(rules.clone(), otherwise, matched).unwrap();
        const OURS: u32 = if cfg!(target_arch = "aarch64") { 0xc000_00b7 } else { 0xc000_003e };
        let all = arguments();
        for nr in (0..1200).chain([0x4000_0000, 0x4000_0029, 0x7fff_ffff, u32::MAX]) {
            let asked = i64::from(nr);
            let args = if rules.get(&asked).is_some_and(|r| !r.is_empty()) { &all[..] } else { &all[..1] };
            for args in args {
                for arch in [OURS, 0x4000_0003] {
                    assert_eq!(ask(&short, arch, nr, *args), ask(&long, arch, nr, *args), "{nr} {args:x?}");
                }
            }
        }
        (short.len(), long.len())
    }

    #[test]
    fn the_short_filters_answer_as_the_long_ones() {
        for has in [true, false] {
            let held = Held { memory: has, cores: has, ..Held::default() };
            for rules in [table(held).unwrap(), confined_rules(held).unwrap()] {
                let (short, long) = same(&rules, errno(libc::EPERM), SeccompAction::Allow);
                assert!(short < 1000, "{short} of {long}");
            }
        }
    }

    #[test]
    fn a_jump_over_more_than_a_comparison_reaches_is_taken() {
        let rules = table(Held { memory: true, cores: true, ..Held::default() }).unwrap();
        let program = tree(&ranges(rules, 1, 2));
        assert!(program.iter().any(|i| i.code == JUMP && i.k > 255));
    }
}
