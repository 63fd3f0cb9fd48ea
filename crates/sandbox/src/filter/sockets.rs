//! Sockets: which there may be, which of their options may be set, and how much they may hold.

use libc::c_int;
use seccompiler::{SeccompCmpOp, SeccompRule};

use super::{Rules, SOCK_TYPE_MASK, condition, only};

/// Families with a network: that of the sandbox, its loopback.
const NETWORKED: [c_int; 2] = [libc::AF_INET, libc::AF_INET6];
/// Kinds of them. Others are other protocols, whose number may be 0 as well: a sequence of packets is SCTP.
const KINDS: [c_int; 2] = [libc::SOCK_STREAM, libc::SOCK_DGRAM];
/// Protocols of them: the default one, TCP and UDP. Others are seldom used parts of the kernel, loaded on demand.
const PROTOCOLS: [c_int; 3] = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

/// Unix sockets, of which there are no protocols; streams and datagrams of IP; raw ones need a capability that is gone,
/// and are refused as well. Netlink only to ask for the interfaces.
pub(super) fn families() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut rules = vec![only(0, SeccompCmpOp::Eq, word(libc::AF_UNIX))?];
    for family in NETWORKED {
        for kind in KINDS {
            for protocol in PROTOCOLS {
                rules.push(SeccompRule::new(vec![
                    condition(0, SeccompCmpOp::Eq, word(family))?,
                    condition(1, SeccompCmpOp::MaskedEq(SOCK_TYPE_MASK), word(kind))?,
                    condition(2, SeccompCmpOp::Eq, word(protocol))?,
                ])?);
            }
        }
    }
    rules.push(SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, word(libc::AF_NETLINK))?,
        condition(2, SeccompCmpOp::Eq, word(libc::NETLINK_ROUTE))?,
    ])?);
    Ok(rules)
}

const TCP_ULP: c_int = 31;
const UDP_ENCAP: c_int = 100;

/// Options that bring another part of the kernel into a socket: the checker of BPF and what compiles it, TLS, tunnels.
/// No level has two of them by one number.
const REFUSED: [c_int; 6] = [
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_BPF,
    libc::SO_ATTACH_REUSEPORT_CBPF,
    libc::SO_ATTACH_REUSEPORT_EBPF,
    TCP_ULP,
    UDP_ENCAP,
];
/// Levels that they are of.
const LEVELS: [c_int; 3] = [libc::SOL_SOCKET, libc::IPPROTO_TCP, libc::IPPROTO_UDP];

/// All but these.
pub(super) fn options() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let none_of = |arg: u8, of: &[c_int]| -> Result<SeccompRule, seccompiler::Error> {
        let not = |value: &c_int| condition(arg, SeccompCmpOp::Ne, word(*value));
        Ok(SeccompRule::new(of.iter().map(not).collect::<Result<_, _>>()?)?)
    };
    Ok(vec![none_of(2, &REFUSED)?, none_of(1, &LEVELS)?])
}

/// To ask for more or less room is answered and does nothing, as the kernel answers who asks for more than there may be:
/// what a socket may hold stays what is counted for one.
pub(super) fn room() -> Result<Rules, seccompiler::Error> {
    let sized = |option: c_int| {
        let conditions = vec![
            condition(1, SeccompCmpOp::Eq, word(libc::SOL_SOCKET))?,
            condition(2, SeccompCmpOp::Eq, word(option))?,
        ];
        Ok(SeccompRule::new(conditions)?)
    };
    let rules: Result<Vec<_>, seccompiler::Error> =
        [libc::SO_SNDBUF, libc::SO_RCVBUF].into_iter().map(sized).collect();
    Ok(Rules::from([(libc::SYS_setsockopt, rules?)]))
}

fn word(value: c_int) -> u64 {
    u64::from(value.unsigned_abs())
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use seccompiler::SeccompAction;

    use super::super::{allow_list, answered, compact, confined_list, errno};
    use crate::launch::Held;

    const ARCH: u32 = 0xc000_003e;

    fn all() -> impl Iterator<Item = (Held, bool)> {
        [true, false]
            .into_iter()
            .flat_map(|has| [true, false].map(|shared| (Held { memory: has, ..Held::default() }, shared)))
    }

    #[test]
    fn a_sequence_of_packets_is_of_unix_sockets_only() {
        let nr = u32::try_from(libc::SYS_socket).unwrap();
        for has in [true, false] {
            let program = allow_list(Held { memory: has, ..Held::default() }).unwrap();
            let ask = |args: [u64; 3]| compact::ask(&program, ARCH, nr, [args[0], args[1], args[2], 0, 0, 0]);
            for flags in [0, 0o2_004_000] {
                for refused in
                    [[2, 5, 0], [10, 5, 0], [2, 5, 132], [2, 1, 132], [10, 1, 262], [2, 6, 33], [2, 3, 0]]
                {
                    let args = [refused[0], refused[1] | flags, refused[2]];
                    assert_eq!(ask(args), u32::from(errno(libc::EPERM)), "{args:?}");
                }
                for let_in in [[1, 1, 0], [1, 2, 0], [1, 5, 0], [2, 1, 0], [2, 2, 17], [10, 1, 6], [10, 2, 0]]
                {
                    let args = [let_in[0], let_in[1] | flags, let_in[2]];
                    assert_eq!(ask(args), u32::from(SeccompAction::Allow), "{args:?}");
                }
            }
        }
    }

    #[test]
    fn no_option_brings_a_program_or_another_protocol_into_a_socket() {
        let nr = u32::try_from(libc::SYS_setsockopt).unwrap();
        for (held, shared) in all() {
            let program = if shared { confined_list(held) } else { allow_list(held) }.unwrap();
            // What stands above 32 bits is nothing for the kernel.
            for high in [0, 1 << 40] {
                let ask = |level: u64, option: u64| {
                    compact::ask(&program, ARCH, nr, [0, level | high, option | high, 0, 0, 0])
                };
                for (level, option) in [(1, 26), (1, 50), (1, 51), (1, 52), (6, 31), (17, 100)] {
                    assert_eq!(ask(level, option), u32::from(errno(libc::EPERM)), "{level} {option}");
                }
                // Of use every day: addresses again, no delay, keeping alive, IPv6 alone, a group of IPv6.
                for (level, option) in [(1, 2), (1, 15), (6, 1), (6, 4), (41, 26), (41, 20), (1, 13)] {
                    assert_eq!(ask(level, option), u32::from(SeccompAction::Allow), "{level} {option}");
                }
            }
        }
    }

    #[test]
    fn what_a_socket_may_hold_can_be_set_only_where_a_group_counts_it() {
        let nr = u32::try_from(libc::SYS_setsockopt).unwrap();
        for (held, _) in all() {
            let program = answered(held).unwrap();
            let ask = |option: u64| compact::ask(&program, ARCH, nr, [0, 1, option, 0, 0, 0]);
            for option in [7, 8] {
                let expected = if held.memory { SeccompAction::Allow } else { errno(0) };
                assert_eq!(ask(option), u32::from(expected), "{option}");
            }
            assert_eq!(ask(9), u32::from(SeccompAction::Allow));
        }
    }
}
