//! Bounds that the engine asks about while a module runs.

use wasmtime::ResourceLimiter;

/// Places of all its tables.
const TABLE: usize = 1 << 20;
/// Tables of a module.
const TABLES: usize = 16;

/// Bounds of a store, and whether the one on memory struck.
pub(super) struct Limiter {
    pub(super) memory: usize,
    pub(super) refused: bool,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let given = wanted <= self.memory;
        self.refused |= !given;
        Ok(given)
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.refused = true;
        Ok(())
    }

    fn table_growing(&mut self, _: usize, wanted: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(wanted <= TABLE)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        TABLES
    }

    fn memories(&self) -> usize {
        1
    }
}
