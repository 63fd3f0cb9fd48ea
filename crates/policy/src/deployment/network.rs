//! `[network]` of the deployment: destinations, some with a header, and what a run may take of the way there.

use super::raw::{RawDestination, RawGranted, RawHeader, RawWithHeader};
use super::{Deployment, set};
use crate::document::Document;
use crate::value::items;
use crate::{Destination, Header, HeaderName, HostRule, Traffic};

impl Traffic {
    pub(super) fn read(&mut self, raw: RawGranted, doc: &mut Document<'_>) {
        let RawGranted { allow: _, open, connections, up, down, rate, idle, lifetime } = raw;
        set(&mut self.open, doc.count("network.open", open));
        set(&mut self.connections, doc.count("network.connections", connections));
        set(&mut self.up, doc.size("network.up", up));
        set(&mut self.down, doc.size("network.down", down));
        self.rate = doc.size("network.rate", rate);
        set(&mut self.idle, doc.duration("network.idle", idle));
        set(&mut self.lifetime, doc.duration("network.lifetime", lifetime));
    }
}

/// No list, or an empty one, is no destination.
pub(super) fn read(
    written: Option<Vec<Option<RawDestination>>>,
    d: &Deployment,
    doc: &mut Document<'_>,
) -> Vec<Destination> {
    let mut read: Vec<Destination> = Vec::new();
    let Some(written) = doc.not_too_many("network.allow", written) else { return read };
    for (key, item) in items("network.allow", Some(written)) {
        let destination = match item {
            RawDestination::Rule(text) => doc.destination(&key, &text).map(Destination::from),
            RawDestination::Table(table) => with_header(&key, table, d, doc),
        };
        let Some(destination) = destination else { continue };
        let twice = |other: &Destination| other.rule() == destination.rule() && *other != destination;
        if read.iter().any(twice) {
            doc.bad(&key, "is named a second time, with another header", "name it once");
        } else if !read.contains(&destination) {
            read.push(destination);
        }
    }
    read
}

fn with_header(
    key: &str,
    table: RawWithHeader,
    d: &Deployment,
    doc: &mut Document<'_>,
) -> Option<Destination> {
    let rule = doc.destination(&format!("{key}.host"), &table.host?)?;
    let header = match table.header {
        Some(header) => Some(read_header(&format!("{key}.header"), header, d, doc)?),
        None => None,
    };
    alone(key, rule, header, doc)
}

fn alone(key: &str, rule: HostRule, header: Option<Header>, doc: &mut Document<'_>) -> Option<Destination> {
    match Destination::new(rule, header) {
        Ok(destination) => Some(destination),
        Err(why) => {
            doc.bad(key, why, "write the host's name, as in `api.example.com:443`");
            None
        }
    }
}

fn read_header(key: &str, raw: RawHeader, d: &Deployment, doc: &mut Document<'_>) -> Option<Header> {
    let name = match HeaderName::parse(&raw.name?) {
        Ok(name) => Some(name),
        Err(why) => {
            doc.bad(&format!("{key}.name"), why, "write its plain name, as in `authorization`");
            None
        }
    };
    let key = format!("{key}.secret_env");
    let secret_env = doc.variable(&key, &raw.secret_env?)?;
    if d.model.api_key_env.as_ref() == Some(&secret_env) {
        doc.bad(&key, "is the model's key, which goes to the model's server alone", "use another variable");
    } else if d.secrets.contains(&secret_env) {
        doc.bad(
            &key,
            "is handed into the sandbox by `secrets.pass`, so nothing would be kept from the guest",
            "name it in one place only",
        );
    }
    Some(Header { name: name?, secret_env })
}
