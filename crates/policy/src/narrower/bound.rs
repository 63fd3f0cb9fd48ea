//! A bound: lower is narrower, and one that somebody wrote stays written.

use super::order::Order;

/// A bound in force. It is never absent: where a Guild says nothing, the deployment's value stands here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    /// Milliseconds, bytes or a count.
    pub(super) value: u64,
    /// Whether the Guild itself says it. One that is taken out leaves whatever the deployment has today or tomorrow,
    /// so that is wider even where the number is the same at the moment.
    pub(super) stated: bool,
}

impl Bound {
    /// The least that both are within.
    pub(super) fn join(&self, other: &Bound) -> Bound {
        Bound { value: self.value.max(other.value), stated: self.stated && other.stated }
    }
}

impl Order for Bound {
    fn within(&self, other: &Self) -> bool {
        self.value <= other.value && (self.stated || !other.stated)
    }

    fn meet(&self, other: &Self) -> Self {
        Bound { value: self.value.min(other.value), stated: self.stated || other.stated }
    }
}

/// What the number of a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Time,
    Bytes,
    Count,
}

/// A bound's number as a person writes it; `key` is the last part of its place.
pub(super) fn worded(key: &str, value: u64) -> String {
    let (value, steps): (u64, &[(u64, &str)]) = match unit(key) {
        Unit::Count => return value.to_string(),
        Unit::Time => (value, &[(3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")]),
        Unit::Bytes => {
            (value, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
        }
    };
    let fits = steps.iter().find(|(size, _)| value >= *size && value.is_multiple_of(*size));
    fits.map_or_else(|| value.to_string(), |(size, name)| format!("{}{name}", value / size))
}

fn unit(key: &str) -> Unit {
    match key {
        "wall" | "cpu" | "timeout" | "call_cpu" | "idle" | "lifetime" => Unit::Time,
        "memory" | "disk" | "tmp" | "output" | "flood" | "call_memory" | "call_disk" | "max_bytes" | "up"
        | "down" | "rate" => Unit::Bytes,
        _ => Unit::Count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_told_in_the_largest_whole_unit() {
        for (key, value, text) in [
            ("timeout", 30_000, "30s"),
            ("wall", 5_400_000, "90m"),
            ("cpu", 1500, "1500ms"),
            ("memory", 512 << 20, "512MiB"),
            ("disk", 1000, "1000B"),
            ("steps", 60, "60"),
            ("memory", 0, "0"),
        ] {
            assert_eq!(worded(key, value), text);
        }
    }
}
