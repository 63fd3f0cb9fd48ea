//! Obeys a Guild: role tree, turns, tools, budgets. Names no role in code.
