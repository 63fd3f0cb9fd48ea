//! `"15m"`, `"2GiB"`: values with units.
//!
//! One number, one unit, nothing else. A text that a person would understand but this reader does not
//! (`"15 min"`, `"2 gb"`) is refused with the spelling that was meant.

use std::time::Duration;

/// Units of time with their length in milliseconds.
const TIMES: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Units of size with their length in bytes.
const SIZES: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// A text that is no value with a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadUnit {
    /// What is wrong, a sentence without a full stop.
    pub(crate) message: &'static str,
    /// The right spelling.
    pub(crate) help: String,
}

/// Reads a duration: `"500ms"`, `"60s"`, `"15m"`, `"2h"`, `"30d"`. Zero is refused.
pub(crate) fn duration(text: &str) -> Result<Duration, BadUnit> {
    measure(text, &TIMES, time_unit).map(Duration::from_millis).map_err(|wrong| BadUnit {
        message: wrong.message("is not a duration"),
        help: wrong.help("write a number and one of ms, s, m, h, d, as in `15m`"),
    })
}

/// Reads a size in bytes: `"2GiB"`, `"256MiB"`, `"5GB"`, or a plain number of bytes. Zero is refused.
pub(crate) fn size(text: &str) -> Result<u64, BadUnit> {
    measure(text, &SIZES, size_unit).map_err(|wrong| BadUnit {
        message: wrong.message("is not a size"),
        help: wrong.help("write a number and one of KiB, MiB, GiB, TiB (or KB, MB, GB, TB), as in `256MiB`"),
    })
}

enum Wrong {
    Form { meant: Option<String> },
    Zero,
    TooLarge,
}

impl Wrong {
    fn message(&self, form: &'static str) -> &'static str {
        match self {
            Wrong::Form { .. } => form,
            Wrong::Zero => "must not be zero",
            Wrong::TooLarge => "is too large to be a bound",
        }
    }

    fn help(&self, form: &str) -> String {
        match self {
            Wrong::Form { meant: Some(meant) } => format!("write `{meant}`"),
            Wrong::Form { meant: None } => form.to_owned(),
            Wrong::Zero | Wrong::TooLarge => {
                "a bound is never unlimited; leave the key out for the default".to_owned()
            }
        }
    }
}

fn measure(text: &str, units: &[(&str, u64)], meant: fn(&str) -> Option<&'static str>) -> Result<u64, Wrong> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let plain_bytes = unit.is_empty() && units.iter().any(|(name, _)| *name == "B");
    let factor = match units.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if plain_bytes => 1,
        None => {
            let spelling = meant(unit.trim()).filter(|_| (1..=12).contains(&digits));
            return Err(Wrong::Form { meant: spelling.map(|unit| format!("{number}{unit}")) });
        }
    };
    if number.is_empty() {
        return Err(Wrong::Form { meant: None });
    }
    // Anything that cannot be counted in an `i64` is no bound at all.
    match number.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)) {
        Some(0) => Err(Wrong::Zero),
        Some(n) if i64::try_from(n).is_ok() => Ok(n),
        Some(_) | None => Err(Wrong::TooLarge),
    }
}

fn time_unit(written: &str) -> Option<&'static str> {
    match written.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "millis" | "milliseconds" => Some("ms"),
        "" | "s" | "sec" | "secs" | "second" | "seconds" => Some("s"),
        "m" | "min" | "mins" | "minute" | "minutes" => Some("m"),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some("h"),
        "d" | "day" | "days" => Some("d"),
        _ => None,
    }
}

fn size_unit(written: &str) -> Option<&'static str> {
    match written.to_ascii_lowercase().as_str() {
        "b" | "byte" | "bytes" => Some("B"),
        "k" | "kib" => Some("KiB"),
        "m" | "mib" => Some("MiB"),
        "g" | "gib" => Some("GiB"),
        "t" | "tib" => Some("TiB"),
        "kb" => Some("KB"),
        "mb" => Some("MB"),
        "gb" => Some("GB"),
        "tb" => Some("TB"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_exactly_one_unit() {
        for (text, ms) in [("500ms", 500), ("60s", 60_000), ("15m", 900_000), ("2h", 7_200_000)] {
            assert_eq!(duration(text).map(|d| d.as_millis()), Ok(ms), "{text}");
        }
        for text in ["", "m", "1h30m", "-5s", "+5s", "1.5h", "٥s", "0x5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_decimal_or_plain() {
        for (text, bytes) in [("2GiB", 2 << 30), ("1MB", 1_000_000), ("7", 7), ("1KiB", 1024)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_near_miss_names_the_right_spelling() {
        assert_eq!(duration("15 min").unwrap_err().help, "write `15m`");
        assert_eq!(duration("60").unwrap_err().help, "write `60s`");
        assert_eq!(size("2 gib").unwrap_err().help, "write `2GiB`");
        assert_eq!(size("256M").unwrap_err().help, "write `256MiB`");
    }

    #[test]
    fn no_bound_is_zero_or_beyond_counting() {
        assert!(duration("0s").unwrap_err().help.contains("never unlimited"));
        assert!(size("99999999999TiB").unwrap_err().help.contains("never unlimited"));
        assert!(size("18446744073709551615").is_err());
    }
}
