//! Moves or copies in the foreground: `move STATE mv|cp SOURCE DESTINATION [preserve]`.

use std::process::ExitCode;

use stage::{JobSpec, Level, Mover, MoverConfig, Options, Place, State, Verb};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [state, verb, source, destination, rest @ ..] = arguments.as_slice() else {
        eprintln!("move STATE mv|cp SOURCE DESTINATION [preserve]");
        return ExitCode::from(2);
    };
    let place = |path: &String| Place::of_path(path.as_ref()).expect("a current directory");
    let mut options = Options::default();
    if let Some(kept) = rest.first() {
        options.preserve = kept.parse().expect("a list of what is kept");
    }
    let verb = if verb == "mv" { Verb::Move } else { Verb::Copy };
    let spec = JobSpec { verb, source: place(source), destination: place(destination), options };
    let ended = Mover::open(&MoverConfig::new(state)).and_then(|mover| {
        let id = mover.submit(spec)?;
        mover.wait(id, Level::Durable, None)
    });
    match ended {
        Ok(status) => {
            println!("{}", serde_json::to_string(&status).expect("plain data becomes JSON"));
            ExitCode::from(u8::from(status.state != State::Done))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
