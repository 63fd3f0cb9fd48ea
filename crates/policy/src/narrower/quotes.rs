//! What a text of a Guild should not quote: keys, and paths of somebody's machine.

use std::collections::BTreeSet;

use crate::shown::looks_like_key;

/// Paths of one text that are told.
const MOST_PATHS: usize = 20;
/// Characters of one path that are looked at.
const MOST_PATH: usize = 200;
/// First parts of paths that are of a machine and not of a sandbox's workspace or system.
const HOST: [&str; 18] = [
    "home",
    "root",
    "users",
    "etc",
    "var",
    "srv",
    "opt",
    "mnt",
    "media",
    "run",
    "proc",
    "sys",
    "boot",
    "dev",
    "private",
    "volumes",
    "lost+found",
    "snap",
];
/// Devices that every program may name.
const DEVICES: [&str; 10] =
    ["null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr", "fd", "shm"];

/// Whether something in the form of a key is in it, also where characters that nobody sees are strewn in.
pub fn has_key(text: &str) -> bool {
    looks_like_key(text) || (!text.is_ascii() && looks_like_key(&text.replace(|c: char| !c.is_ascii(), "")))
}

/// Absolute paths of a machine, without what is ordinary inside: `/workspace`, `/tmp`, `/usr`, `/dev/null`.
pub(super) fn host_paths(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        let begins = match c {
            '/' => begins_path(before) || text.get(..at).is_some_and(|head| head.ends_with("file://")),
            '~' => rest.starts_with("~/") && begins_path(before),
            c if c.is_ascii_alphabetic() => begins_path(before) && rest.get(1..3) == Some(":\\"),
            _ => false,
        };
        before = c;
        if !begins {
            continue;
        }
        let path: String = rest.chars().take_while(|c| is_of_path(*c)).take(MOST_PATH).collect();
        let path = path.trim_end_matches(['.', ',', ':']).to_owned();
        if c != '/' || is_host(&path) {
            found.insert(path);
        }
        if found.len() >= MOST_PATHS {
            break;
        }
    }
    found
}

fn begins_path(before: char) -> bool {
    !before.is_ascii_alphanumeric()
        && !matches!(before, '/' | '.' | '_' | '-' | '~' | '*' | '<' | ':' | '}' | ')')
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '~' | '@' | ':' | '\\' | ',')
}

fn is_host(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let Some(first) = parts.next().map(str::to_ascii_lowercase) else { return false };
    match (first.as_str(), parts.next()) {
        ("dev", Some(device)) => !DEVICES.contains(&device),
        (first, Some(_)) => HOST.contains(&first),
        ("root" | "home", None) => true,
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r58_a_key_is_found_also_with_characters_strewn_in() {
        assert!(has_key("use sk-abcdefghijklmnop") && has_key("use sk-abcd\u{200b}efghijklmnop"));
        assert!(!has_key("use the desk-top"));
    }

    #[test]
    fn paths_of_a_machine_are_found_and_those_of_a_sandbox_are_not() {
        for text in [
            "read /home/ann/x",
            "(/etc/passwd)",
            "see file:///etc/shadow.",
            "cd ~/src",
            "C:\\Users\\ann",
            "`/root`",
            "path=/var/run/docker.sock",
            "/proc/1/environ",
        ] {
            assert_eq!(host_paths(text).len(), 1, "{text}: {:?}", host_paths(text));
        }
        for text in [
            "/workspace/src and /tmp/x",
            "2>/dev/null",
            "https://example.com/home/x",
            "src/home/x and ./etc/x",
            "</home/x>",
            "yes/no, and/or",
            "/usr/bin/python3",
            "a 50/50 chance, C: drive",
            "/help",
        ] {
            assert!(host_paths(text).is_empty(), "{text}: {:?}", host_paths(text));
        }
    }
}
