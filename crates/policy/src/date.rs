//! A day of the calendar. Which day it is today is told by the caller: nothing here reads a clock.

use serde::{Serialize, Serializer};

/// A day, as `2026-12-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// A day that exists, in the one form `2026-12-31`, from 1970 on.
    pub fn parse(text: &str) -> Option<Date> {
        let parts: Vec<&str> = text.split('-').collect();
        let digits = |part: &str, many: usize| part.len() == many && part.bytes().all(|b| b.is_ascii_digit());
        match parts.as_slice() {
            [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2) => {
                Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
            }
            _ => None,
        }
    }

    /// A day that exists, from 1970 on.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Date> {
        let exists = (1970..=9999).contains(&year) && (1..=days_of(year, month)).contains(&day);
        exists.then_some(Date { year, month, day })
    }

    /// The day, in UTC, of a number of seconds since 1970.
    pub fn of_unix(seconds: u64) -> Date {
        let mut days = seconds / 86_400;
        let mut year = 1970;
        while year < 9999 && days >= days_in(year) {
            days -= days_in(year);
            year += 1;
        }
        let mut month = 1;
        while month < 12 && days >= u64::from(days_of(year, month)) {
            days -= u64::from(days_of(year, month));
            month += 1;
        }
        let day = u8::try_from(days.saturating_add(1)).unwrap_or(31).min(31);
        Date { year, month, day }
    }
}

fn is_leap(year: u16) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u16) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

/// None for a month that there is not.
fn days_of(year: u16, month: u8) -> u8 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 0,
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_exists_and_has_one_form() {
        for text in ["2026-12-31", "2024-02-29", "1970-01-01", "2000-02-29"] {
            assert_eq!(Date::parse(text).map(|d| d.to_string()).as_deref(), Some(text));
        }
        for text in [
            "2026-02-29",
            "2100-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-1-1",
            "26-01-01",
            "",
            "2026-12-31T00:00",
        ] {
            assert_eq!(Date::parse(text), None, "{text}");
        }
    }

    #[test]
    fn seconds_are_the_days_that_they_are() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_798_675_199, "2026-12-30"),
            (1_798_675_200, "2026-12-31"),
        ] {
            assert_eq!(Date::of_unix(seconds).to_string(), text);
        }
    }
}
