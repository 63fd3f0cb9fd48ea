//! What hostile bytes reach first, for fuzzing and for the same in small among the tests.
