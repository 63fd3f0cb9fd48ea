//! The strict reader of calls in text: exactly one object in an unmistakable place, or nothing.
//!
//! ```text
//!   <tool_call>{…}</tool_call>   at the end of the answer, prose may come before
//!   ```json … ```                the whole answer
//!   {…}                          the whole answer, and never for a tool that runs programs
//! ```
//!
//! Nothing is mended: a text that almost is a call is told to the model as such.

use serde_json::Value;

use crate::action::read_action;
use policy::{Power, Tool};

/// What a text turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Text {
    /// Exactly one call.
    Call {
        /// As written.
        name: String,
        /// As written.
        args: Value,
        /// Where it stood (`tag`, `fence`, `bare`).
        repair: &'static str,
    },
    /// Something that looks like a call and is none; why.
    Broken(String),
    /// Prose.
    Prose,
}

/// Reads a text.
pub(crate) fn read(content: &str) -> Text {
    let text = content.trim();
    if text.contains("<tool_call>") || text.contains("</tool_call>") {
        return match tagged(text) {
            Ok(inner) => call(inner, "tag"),
            Err(why) => Text::Broken(why.to_owned()),
        };
    }
    if let Some(inner) = fenced(text) {
        return match call(inner, "fence") {
            // A fence without a call in it is prose that shows code.
            Text::Broken(_) if !looks_like_call(inner) => Text::Prose,
            other => other,
        };
    }
    if text.starts_with('{') {
        return call(text, "bare");
    }
    if looks_like_call(text) {
        return Text::Broken("it looks like a tool call, but is not one in the asked form".to_owned());
    }
    Text::Prose
}

fn tagged(text: &str) -> Result<&str, &'static str> {
    let (_, rest) = text.split_once("<tool_call>").ok_or("a closing tag without an opening one")?;
    let (inner, after) = rest.split_once("</tool_call>").ok_or("the closing </tool_call> is missing")?;
    if after.contains("<tool_call>") {
        return Err("more than one call; give exactly one");
    }
    if inner.contains("<tool_call>") {
        return Err("a tag within a tag");
    }
    if !after.trim().is_empty() {
        return Err("text after the call; the call must be the end of the answer");
    }
    Ok(inner.trim())
}

fn fenced(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("```")?;
    let (language, rest) = rest.split_once('\n')?;
    if !matches!(language.trim(), "" | "json") {
        return None;
    }
    let inner = rest.strip_suffix("```")?;
    (!inner.contains("```")).then(|| inner.trim())
}

fn call(text: &str, repair: &'static str) -> Text {
    let value = match crate::strict::parse(text) {
        Ok(value) => value,
        Err(e) => return Text::Broken(crate::text::label(&e.to_string(), 200)),
    };
    let (name, args) = match read_action(&value) {
        Ok(read) => read,
        Err(why) => return Text::Broken(why),
    };
    let runs = Tool::from_name(&name).is_some_and(|t| matches!(t.power(), Power::Execute));
    if repair == "bare" && runs {
        return Text::Broken(format!("a bare object never starts {name}; put it between <tool_call> tags"));
    }
    Text::Call { name, args, repair }
}

fn looks_like_call(text: &str) -> bool {
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).take(20_000).collect();
    ["\"name\":\"", "\"tool\":\"", "<tools>", "<function", "<arguments>"].iter().any(|m| squeezed.contains(m))
        || Tool::ALL.iter().any(|t| text.trim_start().starts_with(&format!("{t}(")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_call(text: &str) -> bool {
        matches!(read(text), Text::Call { .. })
    }

    #[test]
    fn one_tagged_call_at_the_end_is_read() {
        assert!(is_call(
            "I will look.\n<tool_call>{\"name\":\"run_shell\",\"arguments\":{\"command\":\"ls\"}}</tool_call>\n"
        ));
    }

    #[test]
    fn a_fence_that_is_the_whole_answer_is_read() {
        assert!(is_call(
            "```json\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a\", \"content\": \"b\"}}\n```"
        ));
    }

    #[test]
    fn a_bare_object_never_starts_a_program() {
        assert!(is_call(r#"{"tool":"read_file","args":{"path":"a"}}"#));
        assert!(matches!(
            read(r#"{"name":"run_shell","arguments":{"command":"rm hello.txt"}}"#),
            Text::Broken(_)
        ));
    }

    #[test]
    fn two_calls_or_text_after_a_call_are_refused() {
        let one = r#"<tool_call>{"name":"list_dir","arguments":{}}</tool_call>"#;
        assert!(matches!(read(&format!("{one}{one}")), Text::Broken(_)));
        assert!(matches!(read(&format!("{one} done!")), Text::Broken(_)));
    }

    #[test]
    fn double_braces_and_cut_objects_are_not_mended() {
        assert!(matches!(read(r#"{{"name":"write_file","arguments":{}}}"#), Text::Broken(_)));
        assert!(matches!(read(r#"{"name":"write_file","arguments":{"path":"a""#), Text::Broken(_)));
    }

    #[test]
    fn prose_and_code_stay_prose() {
        assert_eq!(read("The bug is fixed."), Text::Prose);
        assert_eq!(read("Here:\n```python\nprint(1)\n```"), Text::Prose);
        assert_eq!(read(""), Text::Prose);
    }
}
