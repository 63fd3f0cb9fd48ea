//! Text of others, made fit for a message: short, one line, plain ASCII, and never a key.

use sha2::{Digest as _, Sha256};

use crate::narrower::has_key;

/// Characters of somebody else's text that a message may repeat.
const SHOWN: usize = 60;

/// `text` as a message may repeat it: at most 60 characters, control and look-alike characters escaped,
/// and nothing at all of a text that looks like a key.
pub fn shown(text: &str) -> String {
    if has_key(text) {
        return "(hidden)".to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let before = out.len();
        match c {
            '`' => out.push('\''),
            ' ' => out.push(' '),
            c if c.is_ascii_graphic() => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
        if out.len() > SHOWN {
            out.truncate(before);
            out.push_str("...");
            break;
        }
    }
    out
}

/// Characters of a text that [`whole`] repeats. Names and hosts that are accepted are shorter.
const WHOLE: usize = 1000;

/// `text` so that no other text is shown the same: in place of what cannot be shown, or goes on too long, stands a
/// digest of all of it.
pub(crate) fn whole(text: &str) -> String {
    if has_key(text) {
        return format!("(hidden)#{}", digest(text));
    }
    let mut out = String::new();
    for c in text.chars() {
        match c {
            // It begins an escape.
            '\\' => out.push_str("\\\\"),
            '`' => out.extend(c.escape_unicode()),
            ' ' => out.push(' '),
            c if c.is_ascii_graphic() => out.push(c),
            c => out.extend(c.escape_unicode()),
        }
        if out.len() > WHOLE {
            out.push_str(&format!("...#{}", digest(text)));
            break;
        }
    }
    out
}

/// Bytes of a digest that are shown: nobody finds two texts of one, and a waiver of one text is none of another.
const DIGEST: usize = 16;

/// The first half of a text's SHA-256.
pub(crate) fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

/// As [`child`], for who must tell any two keys apart.
pub(crate) fn named(parent: &str, key: &str) -> String {
    let shown = whole(key);
    let key =
        if is_bare(key) && shown == key { shown } else { format!("\"{}\"", shown.replace('"', "\\\"")) };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// `parent.key`, the key quoted where it is not a bare one.
pub(crate) fn child(parent: &str, key: &str) -> String {
    let shown = shown(key);
    let key = if is_bare(key) && shown == key { shown } else { format!("\"{shown}\"") };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

/// The accepted word nearest to `word`, if one is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, accepted: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no slips of the pen, and the distance costs the product of the lengths.
    if word.len() > SHOWN {
        return None;
    }
    let word = word.trim().to_lowercase().replace('-', "_");
    // Those whose length alone is too far off.
    let long = word.chars().count().saturating_mul(3) / 2;
    accepted
        .filter(|candidate| candidate.chars().take(long + 2).count() <= long + 1)
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether a text holds something in the form of a well-known kind of key.
pub fn looks_like_key(text: &str) -> bool {
    text.contains("-----BEGIN")
        || has_web_token(text)
        || text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
            .filter(|word| word.len() >= SHORTEST)
            .any(|word| KEYS.iter().any(|(prefix, least)| word.starts_with(prefix) && word.len() >= *least))
}

/// Whether two parts of a signed token stand there: each is an object of JSON in base64.
fn has_web_token(text: &str) -> bool {
    text.match_indices(".eyJ").any(|(dot, _)| {
        let head = text.get(..dot).unwrap_or_default();
        let word = head.bytes().rev().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let first = head.len() - word.take(1000).count();
        head.get(first..).is_some_and(|word| word.starts_with("eyJ") && word.len() >= 10)
    })
}

/// No shorter word is taken for a key of any kind.
const SHORTEST: usize = 12;

/// How keys begin, and the least length at which such a word is taken for one.
const KEYS: [(&str, usize); 35] = [
    ("sk-", 12),
    ("sk_live_", 12),
    ("sk_test_", 12),
    ("rk_live_", 12),
    ("rk_test_", 12),
    // Settings of npm begin so, and are shorter.
    ("npm_", 40),
    ("ghp_", 12),
    ("gho_", 12),
    ("ghs_", 12),
    ("ghu_", 12),
    ("github_pat_", 16),
    ("glpat-", 12),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 20),
    ("xoxb-", 12),
    ("xoxp-", 12),
    ("xoxa-", 12),
    ("xoxr-", 12),
    ("xoxs-", 12),
    ("hf_", 20),
    ("gsk_", 16),
    ("eyJhbGci", 20),
    ("pypi-", 40),
    ("ghr_", 12),
    ("glptt-", 16),
    ("xapp-", 12),
    ("dckr_pat_", 16),
    ("dop_v1_", 20),
    ("shpat_", 20),
    ("whsec_", 20),
    ("rubygems_", 20),
    ("AGE-SECRET-KEY-", 20),
    ("lin_api_", 20),
    ("tfp_", 20),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_key_is_shorter_than_the_shortest() {
        assert_eq!(KEYS.iter().map(|(_, least)| *least).min(), Some(SHORTEST));
    }

    #[test]
    fn a_message_repeats_only_short_plain_text() {
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown("r\u{443}n"), "r\\u{443}n");
        assert!(shown(&"x".repeat(10_000)).len() <= SHOWN + 3);
        assert_eq!(shown("sk-abcdefghijklmnop"), "(hidden)");
    }

    #[test]
    fn places_of_different_keys_are_different() {
        let long = "x".repeat(70);
        let keys = [
            format!("{long}a"),
            format!("{long}b"),
            "`".to_owned(),
            "'".to_owned(),
            "\u{443}".to_owned(),
            "\\u{443}".to_owned(),
            "a\"".to_owned(),
            "a\\\"".to_owned(),
            "sk-abcdefghijklmnop".to_owned(),
            "sk-abcdefghijklmnoq".to_owned(),
            format!("{}a", long.repeat(20)),
            format!("{}b", long.repeat(20)),
        ];
        let places: std::collections::BTreeSet<String> = keys.iter().map(|key| named("t", key)).collect();
        assert_eq!(places.len(), keys.len(), "{places:#?}");
        for place in &places {
            assert!(place.len() < 1100 && !place.contains("abcdefgh"), "{place}");
        }
        assert_eq!(named("network.allow", "a.example:443"), "network.allow.\"a.example:443\"");
        assert_eq!(named("tools", "lint"), "tools.lint");
    }

    /// With 64 bits two texts of one digest were found in minutes.
    #[test]
    fn a_digest_is_half_of_a_sha_256() {
        let long = "x".repeat(2000);
        assert!(whole(&long).ends_with(&format!("...#{}", digest(&long))));
        assert_eq!(digest("abc"), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn keys_are_known_by_their_form_wherever_they_stand() {
        for text in ["sk-abcdefghijkl", "x=ghp_abcdefghijkl", "-----BEGIN RSA", "http://sk-abcdefghijkl@h"] {
            assert!(looks_like_key(text), "{text}");
        }
        for text in [
            "sk_test_abcdefgh",
            "rk_live_abcdefgh",
            "xoxa-2-abcdefgh",
            "npm_abcdefghijklmnopqrstuvwxyz0123456789",
            "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMC0w",
            "dckr_pat_abcdefghijkl",
            "x eyJ0eXAiOiJKV1Qi.eyJzdWIiOiIx.abc",
        ] {
            assert!(looks_like_key(text), "{text}");
        }
        for text in ["pypi-server-behind-a-proxy", "npm_config_registry_of_packages", "a.eyJ", "grey.eyJx"] {
            assert!(!looks_like_key(text), "{text}");
        }
        for text in ["task-abcdefghijklmn", "sk-1", "prompts/coder.md", "desk-top-publishing"] {
            assert!(!looks_like_key(text), "{text}");
        }
    }
}
