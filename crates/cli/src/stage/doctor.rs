//! `flashwright stage doctor`.

use stage::JobStatus;
use stage::journal::Journal;
use stage_service::doctor::{self, Finding};
use stage_service::full;

use super::args::DoctorArgs;
use super::desk::{self, Server, shown};
use super::documents::StageDoctor;
use super::{pools, request};
use crate::failure::Failure;
use crate::{output, paint};

/// Explains what is stuck.
pub fn doctor(args: &DoctorArgs) -> Result<(), Failure> {
    if let Some(state) = &args.server.state
        && !request::directory("--state", state)?.is_dir()
    {
        return Err(Failure::invalid(format!("--state={}: is not there", shown(state)))
            .hint("name the state directory of a server, or of commands with --foreground"));
    }
    let (server, mut findings) = match Server::find_or_why(&args.server)? {
        Ok(server) => {
            let findings = server.ask(|client| client.doctor())?;
            (Some(server.facts().clone()), findings)
        }
        // Without a server its journal tells what waits for one.
        Err(why) => {
            let state = desk::state(&args.server)?;
            let rows = if state.join("journal.db").is_file() { Journal::peek(&state)? } else { Vec::new() };
            let jobs: Vec<_> = rows.into_iter().map(JobStatus::from).collect();
            let full = match pools::without_server(&args.server) {
                Some(Ok(pools)) => full::findings(&pools, &jobs, rustix::process::geteuid().as_raw()),
                Some(Err(failure)) => return Err(failure),
                None => Vec::new(),
            };
            let mut scene = doctor::scene_of(&state, jobs);
            scene.no_server = Some(why);
            let mut findings = doctor::diagnose(&scene);
            findings.extend(full);
            (None, findings)
        }
    };
    for (journal, jobs) in desk::journals_of_commands(&args.server)? {
        doctor::leave_out_parts_of(&mut findings, &jobs);
        findings.extend(doctor::of_command(jobs, journal.at_work));
    }
    let interrupted = desk::interrupted_evictions(&args.server)?;
    findings.extend(interrupted.iter().map(|directory| doctor::of_eviction(directory)));
    findings.sort_by_key(|finding| !finding.stuck);
    let stuck = findings.iter().filter(|finding| finding.stuck).count();
    if args.json {
        let document = StageDoctor { schema: "flashwright.stage-doctor/1", server, findings };
        output::print_document(&document)?;
    } else if findings.is_empty() {
        output::print("nothing is stuck\n")?;
    } else {
        let text: Vec<String> = findings.iter().map(words).collect();
        output::print(&text.join("\n"))?;
    }
    match stuck {
        0 => Ok(()),
        1 => Err(Failure::failed("one thing is stuck").hint("what to do about it is said above")),
        many => {
            Err(Failure::failed(format!("{many} things are stuck"))
                .hint("what to do about them is said above"))
        }
    }
}

fn words(finding: &Finding) -> String {
    let mark = if finding.stuck { paint::bad("stuck:") } else { paint::warn("note:") };
    format!("{mark} {}\n  why: {}\n  do:  {}\n", finding.what, finding.why, finding.remedy)
}
