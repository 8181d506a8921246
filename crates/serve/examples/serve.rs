//! Serves a device over NBD until Ctrl-C: `cargo run --release -p flashwright-serve --example serve -- mem:1g 127.0.0.1:10809`.

use std::error::Error;
use std::os::fd::AsFd;

use serve::{Export, Options, Server};
use storage::device::{DeviceSpec, OpenOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "mem:256m".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:10809".to_owned());
    let device = volume::open(&DeviceSpec::parse(&spec)?, &OpenOptions::writing())?;
    let export = Export { name: String::new(), description: spec, device, writable: true };
    let options = Options { max_connections: 64, tls: None };
    let mut server = Server::new(export, options, |event| eprintln!("{event:?}"))?;
    println!("ready: nbd://{}/", server.listen(address.parse()?)?);
    // A pipe whose other end nobody closes: Ctrl-C ends the process.
    let (stop, _open) = std::io::pipe()?;
    server.run(stop.as_fd())?;
    Ok(())
}
