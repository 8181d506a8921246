//! What may be seen of sets, whatever their ranks do and in whatever order. The model:
//!
//! - `durable(run, step)`: the ranks whose part was said to be durable;
//! - a set is complete, for whoever looks, only if `durable` is all of its ranks, and from then on as long as retention
//!   keeps it;
//! - `latest` is the newest complete set: it exists from the first complete one on, and never goes back;
//! - retention leaves `keep_slow` complete sets, or all if there are fewer, and every part of the others.

use std::collections::{BTreeMap, BTreeSet};

use stage_service::store::{Store, StoreConfig, always};

use crate::{Cluster, contents, drain, read};

const RANKS: u32 = 3;
const KEEP_SLOW: usize = 2;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn seen(observer: &Store, durable: &BTreeMap<(u64, String), BTreeSet<u32>>, before: &mut Option<u64>) {
    let complete: Vec<(u64, String)> = durable
        .iter()
        .filter(|(_, ranks)| ranks.len() == RANKS as usize)
        .map(|(set, _)| set.clone())
        .collect();
    let sets = observer.sets().unwrap();
    let mut found = 0;
    for set in &sets {
        let key = (set.id.step, set.id.run.to_string());
        let ranks = &durable[&key];
        assert_eq!(set.is_complete, complete.contains(&key), "{set:?}: durable are {ranks:?}");
        found += usize::from(set.is_complete);
        let absent: BTreeSet<u32> = set.faults.iter().map(|fault| fault.rank).collect();
        assert!(absent.is_disjoint(ranks) && absent.len() + ranks.len() == RANKS as usize, "{set:?}");
    }
    assert_eq!(found, complete.len().min(KEEP_SLOW), "{sets:?}");
    let latest = observer.latest_set().unwrap().map(|(id, _)| (id.step, id.run.to_string()));
    assert_eq!(latest, complete.last().cloned());
    let step = latest.map(|(step, _)| step);
    assert!(step >= *before, "latest went from {before:?} to {step:?}");
    *before = step;
}

#[test]
fn what_is_seen_of_sets_is_what_the_model_allows() {
    for objects in [false, true] {
        let seed = std::env::var("FLASHWRIGHT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed: u64 = seed.unwrap_or(20_261_123) + u64::from(objects);
        println!("objects: {objects}, seed {seed}");
        let mut random = Random(seed | 1);
        let cluster = Cluster::new(objects);
        let open = |run: u32, rank| {
            let config = cluster.config(&format!("run{run}"), rank, RANKS);
            Store::open(StoreConfig { keep_slow: Some(KEEP_SLOW as u32), keep_fast: Some(1), ..config })
                .unwrap()
        };
        let observe =
            || Store::open(StoreConfig { read_only: true, ..cluster.config("run0", 0, RANKS) }).unwrap();
        let (mut durable, mut before) = (BTreeMap::<(u64, String), BTreeSet<u32>>::new(), None);
        let mut step = 0;
        for run in 0..4 {
            let stores: Vec<Store> = (0..RANKS).map(|rank| open(run, rank)).collect();
            // Steps go on from the newest complete one, as in a restart; the newest set of a run may stay incomplete.
            step = before.unwrap_or(step);
            for _ in 0..1 + random.below(3) {
                step += 1;
                let name = format!("run{run}");
                let mut ranks: Vec<u32> = (0..RANKS).collect();
                for at in (1..ranks.len()).rev() {
                    ranks.swap(at, random.below(at as u64 + 1) as usize);
                }
                let dies = random.below(4) == 0;
                for rank in ranks.into_iter().skip(usize::from(dies)) {
                    drain(&stores[rank as usize], &name, step, rank);
                    durable.entry((step, name.clone())).or_default().insert(rank);
                    seen(&observe(), &durable, &mut before);
                }
                if dies {
                    break;
                }
            }
            if let Some((id, _)) = stores[0].latest_set().unwrap() {
                for (rank, store) in (0..).zip(&stores) {
                    let part = store.restore_part(id.step, Some(&id.run), None, true, &always).unwrap();
                    assert_eq!(read(&part), contents(id.run.as_str(), id.step, rank));
                }
            }
        }
    }
}
