//! Whether a launcher of MPI started this process, told from the environment that it sets.

/// What a launcher says of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The number of this process.
    pub rank: u32,
    /// How many processes it started.
    pub size: u32,
}

/// Variables of number and size: Open MPI's mpirun; PMI, which MPICH's mpirun and Slurm's `srun --mpi=pmi2` set.
const VARIABLES: [[&str; 2]; 2] =
    [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], ["PMI_RANK", "PMI_SIZE"]];

/// What the launcher says; None if no launcher of MPI started this process.
#[must_use]
pub fn launched() -> Option<Launch> {
    of(|name| std::env::var(name).ok())
}

fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Launch> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let launch = |[rank, size]: [&str; 2]| Some(Launch { rank: number(rank)?, size: number(size)? });
    VARIABLES.into_iter().find_map(launch).filter(|launch| launch.rank < launch.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_launchers_are_known_and_half_of_an_environment_is_none() {
        let environment = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        let launch = Some(Launch { rank: 1, size: 4 });
        assert_eq!(of(environment(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")])), launch);
        assert_eq!(of(environment(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")])), launch);
        assert_eq!(of(environment(&[("PMI_RANK", "1")])), None);
        assert_eq!(of(environment(&[("PMI_RANK", "4"), ("PMI_SIZE", "4")])), None);
        assert_eq!(of(environment(&[])), None);
    }
}
