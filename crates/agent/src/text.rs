//! Texts on their way to a model or a terminal: clean and bounded.

/// Makes control sequences visible and harmless; line feeds and tabs stay.
///
/// Bidirectional overrides go too: they let a text look like another one.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
            '\u{7f}' => '\u{2421}',
            '\u{80}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => '\u{fffd}',
            other => other,
        })
        .collect()
}

/// At most about `max` characters: head and tail, with a line between that says what is missing.
pub(crate) fn bound(text: &str, max: usize) -> String {
    bound_naming(text, max, "")
}

/// The same, with a word where the rest is.
pub(crate) fn bound_naming(text: &str, max: usize, rest: &str) -> String {
    let total = text.chars().count();
    if total <= max {
        return text.to_owned();
    }
    let keep = max.saturating_sub(60 + rest.len()).max(2);
    let (head, tail) = (keep / 2, keep - keep / 2);
    let head_end = text.char_indices().nth(head).map_or(text.len(), |(i, _)| i);
    let tail_start = text.char_indices().nth(total - tail).map_or(text.len(), |(i, _)| i);
    format!(
        "{}\n[... {} characters left out{rest} ...]\n{}",
        &text[..head_end],
        total - head - tail,
        &text[tail_start..]
    )
}

/// The first `max` characters on one line, cleaned: for names and reasons.
pub(crate) fn label(text: &str, max: usize) -> String {
    let mut out: String = clean(text).replace(['\n', '\t'], " ").chars().take(max).collect();
    if text.chars().count() > max {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4: terminal escapes are neutralised.
    #[test]
    fn r4_escape_sequences_become_visible_signs() {
        assert_eq!(clean("a\x1b[31mb\u{9b}c\u{202e}\n"), "a\u{241b}[31mb\u{fffd}c\u{fffd}\n");
    }

    /// R7: what is shown is size-capped.
    #[test]
    fn r7_a_long_text_keeps_head_and_tail_and_says_so() {
        let long = format!("START{}END", "é".repeat(50_000));
        let cut = bound(&long, 1000);
        assert!(cut.starts_with("START") && cut.ends_with("END") && cut.contains("left out"));
        assert!(cut.chars().count() <= 1000);
    }
}
