//! The calls of the confined tier about which init is asked: what a file is but for its bytes and names.
//!
//! Landlock judges none of them, and a file that may only be read can be changed by most. So each is a question to
//! init, by path and by descriptor alike; those that init has no answer for are refused. What init then does itself
//! would be a question again, with nobody to answer it: it carries a [`MARK`], which nothing below init may use.

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::{Rules, arch, condition, errno};

/// What init has as the sixth argument, which none of these calls takes, of what it does as an answer. It is no secret:
/// see [`without_mark`].
pub(crate) const MARK: u64 = 0x6f75_626c_6965_7474;

const ASKED: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchown,
    libc::SYS_utimensat,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
];

/// By which init sets owners and attributes: nobody may without the mark.
const BY_INIT_ONLY: &[c_long] = &[libc::SYS_fchownat, libc::SYS_setxattr, libc::SYS_removexattr];

/// Makes them questions.
pub(crate) fn attributes() -> Result<BpfProgram, seccompiler::Error> {
    let mut rules = Rules::new();
    for nr in ASKED {
        rules.insert(*nr, vec![marked(SeccompCmpOp::Ne)?]);
    }
    let mut program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trap, arch())?.try_into()?;
    // The library has no word for a question: what would be a trap becomes one.
    const RETURN: u16 = 0x06;
    for instruction in &mut program {
        if instruction.code == RETURN && instruction.k == libc::SECCOMP_RET_TRAP {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

/// What init itself may besides, with the mark.
pub(super) fn by_init_only() -> Result<Rules, seccompiler::Error> {
    BY_INIT_ONLY.iter().map(|nr| Ok((*nr, vec![marked(SeccompCmpOp::Eq)?]))).collect()
}

/// Refuses the mark to this process and all it starts. A refusal outweighs a question.
pub(crate) fn without_mark() -> Result<(), seccompiler::Error> {
    let mut rules = Rules::new();
    for nr in ASKED.iter().chain(BY_INIT_ONLY) {
        rules.insert(*nr, vec![marked(SeccompCmpOp::Eq)?]);
    }
    let program: BpfProgram =
        SeccompFilter::new(rules, SeccompAction::Allow, errno(libc::EPERM), arch())?.try_into()?;
    apply_filter(&program)
}

fn marked(op: SeccompCmpOp) -> Result<SeccompRule, seccompiler::Error> {
    Ok(SeccompRule::new(vec![SeccompCondition::new(5, SeccompCmpArgLen::Qword, op, MARK)?])?)
}

/// The ioctls of that tier: of pipes and terminals, and those of files that only read, or write where the descriptor may.
/// File systems have many more, and of them some set flags, versions or quotas by a descriptor for reading, or make
/// files in a folder that may only be read.
pub(super) fn ioctls(refused: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const TERMINALS: (u64, u64) = (0xff00, 0x5400);
    const FICLONE: u64 = 0x4004_9409;
    const FICLONERANGE: u64 = 0x4020_940d;
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    const FS_IOC_GETVERSION: u64 = 0x8008_7601;
    const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
    const FS_IOC_FIEMAP: u64 = 0xc020_660b;
    const FIGETBSZ: u64 = 2;
    const RNDGETENTCNT: u64 = 0x8004_5200;
    // Those by which init is asked; a guest has no such descriptor, see `sys`.
    const NOTIF_RECV: u64 = 0xc050_2100;
    const NOTIF_SEND: u64 = 0xc018_2101;
    const NOTIF_ID_VALID: u64 = 0x4008_2102;
    let mut terminals = vec![condition(1, SeccompCmpOp::MaskedEq(TERMINALS.0), TERMINALS.1)?];
    for nr in refused {
        terminals.push(condition(1, SeccompCmpOp::Ne, *nr)?);
    }
    let files = [
        FICLONE,
        FICLONERANGE,
        FS_IOC_GETFLAGS,
        FS_IOC_GETVERSION,
        FS_IOC_FSGETXATTR,
        FS_IOC_FIEMAP,
        FIGETBSZ,
        RNDGETENTCNT,
        NOTIF_RECV,
        NOTIF_SEND,
        NOTIF_ID_VALID,
    ];
    let mut rules = vec![SeccompRule::new(terminals)?];
    for nr in files {
        rules.push(SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, nr)?])?);
    }
    Ok(rules)
}

/// Every fcntl but the watch on a folder and the hint for whoever writes the file. A lease is for the tools for files.
pub(super) fn fcntls() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    const F_SET_RW_HINT: u64 = 1036;
    const F_SET_FILE_RW_HINT: u64 = 1038;
    let refused = [u64::from(libc::F_NOTIFY.unsigned_abs()), F_SET_RW_HINT, F_SET_FILE_RW_HINT];
    let not = |nr: u64| condition(1, SeccompCmpOp::Ne, nr);
    Ok(vec![SeccompRule::new(refused.into_iter().map(not).collect::<Result<_, _>>()?)?])
}

#[cfg(test)]
mod tests {
    use super::super::{NOT_SHARED, confined_rules, table};
    use super::*;
    use crate::launch::Held;

    /// Every call that sets what a file is but for bytes and names is asked about or refused, and one that init makes
    /// itself is in no guest's hands.
    #[test]
    fn no_call_that_changes_what_a_file_is_goes_past_init() {
        let all = [
            libc::SYS_fchmod,
            libc::SYS_fchmodat,
            libc::SYS_fchmodat2,
            libc::SYS_fchown,
            libc::SYS_fchownat,
            libc::SYS_utimensat,
            libc::SYS_setxattr,
            libc::SYS_lsetxattr,
            libc::SYS_fsetxattr,
            libc::SYS_removexattr,
            libc::SYS_lremovexattr,
            libc::SYS_fremovexattr,
            // `setxattrat`, `removexattrat`, `file_setattr`
            463,
            466,
            469,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chown,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lchown,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat,
        ];
        let rules = confined_rules(Held::default()).unwrap();
        for nr in all {
            let without_init = ASKED.contains(&nr) || BY_INIT_ONLY.contains(&nr) || !rules.contains_key(&nr);
            assert!(without_init, "call {nr}");
            if table(Held::default()).unwrap().contains_key(&nr) && !ASKED.contains(&nr) {
                assert!(NOT_SHARED.contains(&nr), "call {nr}");
            }
        }
        for nr in BY_INIT_ONLY {
            assert!(!rules[nr].is_empty(), "call {nr}");
        }
    }
}
