//! What systemd is told: ready, how it goes, still alive, stopping (sd_notify(3)).
//!
//! Outside of systemd nothing is sent. A message that is not taken is no failure: the
//! mover's work does not depend on being watched.

use std::time::Duration;

use sd_notify::NotifyState;

/// Says that requests are taken.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Says that none are taken any more.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("stopping between two steps; the next start goes on")]);
}

/// Says how it goes, one line.
pub(super) fn status(text: &str) {
    tell(&[NotifyState::Status(text)]);
}

/// Says that it lives.
pub(super) fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often systemd wants to hear that it lives, if it does (WatchdogSec=); half of what it allows.
pub(super) fn interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|whole| whole / 2)
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "a notice was not taken at NOTIFY_SOCKET");
    }
}
