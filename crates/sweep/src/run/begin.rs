//! The start of a sweep: its results file, with the whole plan in it.

use std::path::Path;

use super::Identity;
use crate::plan::fresh_seed;
use crate::space::Space;
use crate::store::{Meta, Store, StoreError, now_unix_ns};

/// A results file that is ready to be run.
#[derive(Debug)]
pub struct Begun {
    /// The file, locked for this process.
    pub store: Store,
    /// Whether it was there already, holding the same plan.
    pub resumed: bool,
}

/// Makes the results file of a sweep over `space`, or opens the one that is there if its plan is the
/// same. The seed is the space's; where it has none, that of the file, or a fresh one, and for a shard one that
/// all shards agree on.
///
/// # Errors
/// [`StoreError::OtherPlan`] where the file holds another sweep; otherwise as [`Store::create`] and
/// [`Store::open`].
pub fn begin(path: &Path, space: &Space, identity: &Identity) -> Result<Begun, StoreError> {
    let seed = match space.shard {
        Some(_) => space.common_seed(),
        None => space.seed.unwrap_or_else(fresh_seed),
    };
    let meta = Meta {
        name: space.name.clone(),
        space: space.text.clone(),
        created_unix_ns: now_unix_ns(),
        version: identity.version.clone(),
        seed,
        passes: space.passes,
        order: space.order,
        discard_first: space.discard_first,
        control: space.control,
        control_every: space.control_every,
        max_consecutive_failures: space.limits.failures,
        plan_digest: space.plan(seed).digest(),
        shards: space.shards,
        parts: space.shard.map_or_else(|| (1..=space.shards).collect(), |shard| vec![shard]),
        prepare: space.prepare,
        protocol: space.protocol,
        budget: space.budget,
        spacing: space.rules(seed).spacing,
        equivalence: space.equivalence,
        machine: identity.machine.clone(),
    };
    match Store::create(path, &meta, &space.plan_here(seed)) {
        Ok(store) => Ok(Begun { store, resumed: false }),
        Err(StoreError::Exists { .. }) => go_on(path, space),
        Err(error) => Err(error),
    }
}

fn go_on(path: &Path, space: &Space) -> Result<Begun, StoreError> {
    let store = Store::open(path)?;
    let meta = store.meta()?;
    let wanted = space.plan(space.seed.unwrap_or(meta.seed));
    let other_part = space.shard.is_some_and(|shard| meta.parts != [shard]);
    if other_part || wanted.digest() != meta.plan_digest || space.discard_first != meta.discard_first {
        let (path, found, wanted) = (store.path().to_owned(), meta.name, space.name.clone());
        return Err(StoreError::OtherPlan { path, found, wanted });
    }
    Ok(Begun { store, resumed: true })
}
