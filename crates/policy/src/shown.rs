//! Text of others, made fit for a message: short, one line, plain ASCII, and never a key.

/// Characters of somebody else's text that a message may repeat.
const SHOWN: usize = 60;

/// `text` as a message may repeat it: at most 60 characters, control and look-alike characters escaped,
/// and nothing at all of a text that looks like a key.
pub fn shown(text: &str) -> String {
    if looks_like_key(text) {
        return "(hidden)".to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        let piece = match c {
            '`' => "'".to_owned(),
            ' ' => " ".to_owned(),
            c if c.is_ascii_graphic() => c.to_string(),
            c => c.escape_unicode().to_string(),
        };
        if out.len() + piece.len() > SHOWN {
            out.push_str("...");
            break;
        }
        out.push_str(&piece);
    }
    out
}

/// `parent.key`, the key quoted where it is not a bare one.
pub(crate) fn child(parent: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let shown = shown(key);
    let key = if bare && shown == key { shown } else { format!("\"{shown}\"") };
    if parent.is_empty() { key } else { format!("{parent}.{key}") }
}

/// The accepted word nearest to `word`, if one is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, accepted: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are no slips of the pen, and the distance costs the product of the lengths.
    if word.len() > SHOWN {
        return None;
    }
    let word = word.trim().to_lowercase().replace('-', "_");
    accepted
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Whether a text holds something in the form of a well-known kind of key.
pub fn looks_like_key(text: &str) -> bool {
    text.contains("-----BEGIN")
        || text
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
            .any(|word| KEYS.iter().any(|(prefix, least)| word.starts_with(prefix) && word.len() >= *least))
}

/// How keys begin, and the least length at which such a word is taken for one.
const KEYS: [(&str, usize); 16] = [
    ("sk-", 12),
    ("sk_live_", 12),
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
    ("hf_", 20),
    ("gsk_", 16),
    ("eyJhbGci", 20),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_repeats_only_short_plain_text() {
        assert_eq!(shown("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown("r\u{443}n"), "r\\u{443}n");
        assert!(shown(&"x".repeat(10_000)).len() <= SHOWN + 3);
        assert_eq!(shown("sk-abcdefghijklmnop"), "(hidden)");
    }

    #[test]
    fn keys_are_known_by_their_form_wherever_they_stand() {
        for text in ["sk-abcdefghijkl", "x=ghp_abcdefghijkl", "-----BEGIN RSA", "http://sk-abcdefghijkl@h"] {
            assert!(looks_like_key(text), "{text}");
        }
        for text in ["task-abcdefghijklmn", "sk-1", "prompts/coder.md", "desk-top-publishing"] {
            assert!(!looks_like_key(text), "{text}");
        }
    }
}
