//! Whatever users do, the bounds are kept.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Reserve { pool: bool, owner: u32, blocks: u64 },
    Write { which: usize, blocks: u64 },
    Release { which: usize },
    Evict { pool: bool, blocks: u64 },
    Pass { minutes: u64 },
    Restart,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any::<bool>(), ALICE..=BOB, 1u64..40)
            .prop_map(|(pool, owner, blocks)| Act::Reserve { pool, owner, blocks }),
        4 => (any::<usize>(), 1u64..20).prop_map(|(which, blocks)| Act::Write { which, blocks }),
        2 => any::<usize>().prop_map(|which| Act::Release { which }),
        2 => (any::<bool>(), 0u64..40).prop_map(|(pool, blocks)| Act::Evict { pool, blocks }),
        1 => (0u64..1000).prop_map(|minutes| Act::Pass { minutes }),
        1 => Just(Act::Restart),
    ]
}

/// What the test knows of a reservation.
struct Held {
    reservation: Reservation,
    owner: u32,
    left: u64,
    files: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_quota_share_and_free_space_are_kept_and_only_what_is_durable_goes(
        acts in prop::collection::vec(acts(), 1..40),
        quota in 20u64..100,
        size in 20u64..150,
        durable_each in 1u64..4,
    ) {
        let share = quota / 2 + 1;
        let mut f = fixture(quota, share, size);
        let mut held: Vec<Held> = Vec::new();
        let mut next = 0u32;
        let name = |pool: bool| if pool { "a" } else { "b" };
        // By its number, a set's slow copy is durable or not.
        let durable = |set: &Path| {
            let number: u64 = set.file_name().unwrap().to_str().unwrap()[1..].parse().unwrap();
            number.is_multiple_of(durable_each)
        };
        for act in acts {
            match act {
                Act::Reserve { pool, owner, blocks } => {
                    next += 1;
                    match f.reserve(name(pool), owner, &format!("s{next}"), blocks) {
                        Ok(reservation) => held.push(Held { reservation, owner, left: blocks, files: 0 }),
                        Err(error) => prop_assert_eq!(error.class(), stage::ErrorClass::Refused, "{}", error),
                    }
                }
                Act::Write { which, blocks } if !held.is_empty() => {
                    let n = held.len();
                    let held = &mut held[which % n];
                    let blocks = blocks.min(held.left);
                    held.left -= blocks;
                    held.files += 1;
                    if blocks > 0 {
                        write(&held.reservation, &format!("f{}", held.files), blocks);
                    }
                }
                Act::Release { which } if !held.is_empty() => {
                    let held = held.remove(which % held.len());
                    f.pools.release(held.reservation.id, held.owner).unwrap();
                }
                Act::Evict { pool, blocks } => {
                    let ask = |set: &Path| Ok((!durable(set)).then(|| "not durable".to_owned()));
                    let before = f.status(name(pool));
                    let eviction = before.eviction(blocks * BLOCK, &ask);
                    for set in &eviction.go {
                        prop_assert!(durable(&set.path.0));
                        prop_assert!(held.iter().all(|held| held.reservation.directory != set.path));
                        fs::remove_dir_all(&set.path.0).unwrap();
                    }
                    let judged = eviction.stay.len() + eviction.go.len();
                    prop_assert!(eviction.found >= eviction.wanted || judged == before.sets.len());
                    f.pools.room_was_made();
                    prop_assert_eq!(f.status(name(pool)).used, before.used - eviction.found);
                }
                Act::Pass { minutes } => {
                    f.clock.pass(Duration::from_secs(minutes * 60));
                    let now = f.clock.now().wall.as_secs();
                    held.retain(|held| held.reservation.expires > now);
                }
                Act::Restart => f.pools = f.reopened(),
                _ => {}
            }
            // What is reserved and written by those who keep to it, against every bound.
            let mut promised = 0;
            let mut free = 0;
            for pool in ["a", "b"] {
                f.pools.room_was_made();
                let status = f.status(pool);
                prop_assert!(status.used + status.reserved <= status.quota, "{status:?}");
                for owner in [ALICE, BOB] {
                    let used: u64 = status.sets.iter().filter(|s| s.owner == owner).map(|s| s.bytes).sum();
                    let own = status.reservations.iter().filter(|r| r.owner == owner);
                    let reserved: u64 = own.map(|r| r.bytes.saturating_sub(r.used)).sum();
                    prop_assert!(used + reserved <= share * BLOCK, "{status:?}");
                }
                promised += status.reserved;
                free = status.free;
            }
            prop_assert!(promised <= free, "{promised} of {free}");
            let alive: usize = f.pools.list().unwrap().iter().map(|pool| pool.reservations.len()).sum();
            prop_assert_eq!(alive, held.len());
        }
    }
}
