//! `oubliette schema KIND`.

use std::process::ExitCode;

use policy::SchemaKind;

use crate::args::{KindName, Schema};
use crate::exit::Exit;
use crate::render;

pub(crate) fn schema(args: &Schema) -> anyhow::Result<ExitCode> {
    let kind = match args.kind {
        KindName::Deployment => SchemaKind::Deployment,
        KindName::Guild => SchemaKind::Guild,
        KindName::Foundry => SchemaKind::Foundry,
    };
    render::json(&policy::schema(kind))?;
    Ok(Exit::Done.into())
}
