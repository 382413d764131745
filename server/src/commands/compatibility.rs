//! The list of commands in `docs/compatibility.md`, written from the registry.
//!
//! The page has a part between two marks. `millrace compatibility FILE` rewrites that part; a test fails
//! while the page says anything else than the registry.

use std::fmt::Write;
use std::io;
use std::path::Path;

use millrace_command::{Access, CommandSpec, ReadConcernSupport, Requirement, WriteConcernSupport};

use super::registry::Registry;

/// The line before the generated part.
const BEGIN: &str = "<!-- commands: begin. `make fix` writes this part. -->\n";

/// The line after the generated part.
const END: &str = "<!-- commands: end -->\n";

/// Rewrites the list of commands in the page at `path`, if it says anything else.
///
/// # Errors
/// When the page cannot be read or written, or has no such part.
pub fn rewrite(path: &Path) -> io::Result<()> {
    let page = std::fs::read_to_string(path)?;
    let new = with_commands(&page, &Registry::new()).ok_or_else(|| {
        let what = format!("{} has no part for the list of commands", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    if new == page {
        return Ok(());
    }
    std::fs::write(path, new)
}

/// The page with the list of commands of `registry`; `None` if it has no part for it.
fn with_commands(page: &str, registry: &Registry) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let table = table(registry);
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// The commands as a table in Markdown.
fn table(registry: &Registry) -> String {
    let mut table = String::from(
        "| command | what it does | access | privileges | in transactions | API 1 | `writeConcern` \
         | `readConcern` |\n|---|---|---|---|---|---|---|---|\n",
    );
    for entry in registry.commands() {
        let spec = entry.spec;
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            names(spec),
            spec.help,
            access(spec),
            privileges(&spec.privileges),
            yes(spec.in_transactions),
            yes(!spec.stable_api.versions().is_empty()),
            write_concern(spec.write_concern),
            read_concern(spec.read_concern),
        );
    }
    table
}

fn names(spec: &CommandSpec) -> String {
    let names: Vec<_> = spec.spellings().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

const fn access(spec: &CommandSpec) -> &'static str {
    match spec.access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Admin => "server",
    }
}

fn privileges(requirement: &Requirement) -> String {
    let needs: Vec<_> = requirement
        .needs()
        .iter()
        .map(|need| format!("`{}` ({})", need.action.name(), need.on.name()))
        .collect();
    match requirement {
        Requirement::Nothing(reason) => format!("none: {reason}"),
        Requirement::Authentication(reason) => format!("a login: {reason}"),
        Requirement::All(_) => needs.join(", "),
        Requirement::ByRequest { .. } => format!("by request: {}", needs.join(", ")),
    }
}

const fn yes(fact: bool) -> &'static str {
    if fact { "yes" } else { "" }
}

const fn write_concern(support: WriteConcernSupport) -> &'static str {
    match support {
        WriteConcernSupport::Honoured => "honoured",
        WriteConcernSupport::Refused => "refused",
        WriteConcernSupport::Ignored => "no effect",
    }
}

fn read_concern(support: ReadConcernSupport) -> String {
    match support {
        ReadConcernSupport::Levels(levels) => {
            let names: Vec<_> = levels.iter().map(|level| level.name()).collect();
            names.join(", ")
        }
        ReadConcernSupport::Ignored => "no effect".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_the_commands_of_the_registry() {
        let page = include_str!("../../../docs/compatibility.md");
        let expected = with_commands(page, &Registry::new()).expect("the page has the part");
        assert!(
            page == expected,
            "docs/compatibility.md does not list the commands as they are declared: `make fix` or \
             `cargo run --package millrace -- compatibility docs/compatibility.md` rewrites it"
        );
    }

    #[test]
    fn the_rest_of_a_page_stays_as_it_is() {
        let page = format!("before\n{BEGIN}| stale |\n{END}after\n");
        let registry = Registry::new();
        let new = with_commands(&page, &registry).expect("it has the part");
        assert!(new.starts_with("before\n") && new.ends_with("after\n"));
        assert!(new.contains("| `findAndModify`, `findandmodify` |") && !new.contains("stale"));
        assert_eq!(with_commands(&new, &registry), Some(new.clone()));
        assert_eq!(with_commands("no part", &registry), None);
    }
}
