//! `"15m"`, `"2GiB"`: values with units.
