//! Whether a launcher started this process as one of several, told from the environment that it sets.
//!
//! A launcher of MPI says which process this is and how many there are, and the processes can meet. `srun` says so too where it
//! offers no PMI (`--mpi=none`), and then they cannot: an MPI library would have each believe that it is alone.

/// What a launcher says of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The number of this process.
    pub rank: u32,
    /// How many processes it started.
    pub size: u32,
    /// What started them.
    pub launcher: Launcher,
}

/// What starts several processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// An mpirun, or whatever else sets the variables of one.
    Mpirun,
    /// Slurm's srun, with PMIx.
    SrunPmix,
    /// Slurm's srun, with nothing by which the processes could meet.
    SrunAlone,
}

impl Launcher {
    /// The command's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpirun => "mpirun",
            Self::SrunPmix | Self::SrunAlone => "srun",
        }
    }
}

/// Variables of number and size: Open MPI's mpirun; PMI, which MPICH's mpirun and Slurm's `srun --mpi=pmi2` set.
const MPIRUN: [[&str; 2]; 2] = [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], ["PMI_RANK", "PMI_SIZE"]];

/// Variables of size that srun sets: of this step; of this step or else of its job.
const SRUN_SIZES: [&str; 2] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];

/// What the launcher says; None if none started this process, or if srun started it alone.
#[must_use]
pub fn launched() -> Option<Launch> {
    of(&|name| std::env::var(name).ok())
}

fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Launch> {
    let number = |name: &str| variable(name)?.parse::<u32>().ok();
    let mpirun = |[rank, size]: [&str; 2]| {
        Some(Launch { rank: number(rank)?, size: number(size)?, launcher: Launcher::Mpirun })
    };
    let launch = MPIRUN.into_iter().find_map(mpirun).or_else(|| {
        // The script of a batch job has all other variables of srun's: whatever it starts is alone.
        base::environment::srun_step(variable)?;
        let size = SRUN_SIZES.into_iter().find_map(number)?;
        match number("PMIX_RANK") {
            Some(rank) => Some(Launch { rank, size, launcher: Launcher::SrunPmix }),
            None if size > 1 => {
                Some(Launch { rank: number("SLURM_PROCID")?, size, launcher: Launcher::SrunAlone })
            }
            None => None,
        }
    });
    launch.filter(|launch| launch.rank < launch.size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told by an environment of `NAME=VALUE`, separated by blanks.
    fn told(environment: &str) -> Option<Launch> {
        let variable = |name: &str| {
            let mut set = environment.split_whitespace().filter_map(|one| one.split_once('='));
            set.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        of(&variable)
    }

    #[test]
    fn both_launchers_are_known_and_half_of_an_environment_is_none() {
        let launch = Some(Launch { rank: 1, size: 4, launcher: Launcher::Mpirun });
        assert_eq!(told("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4"), launch);
        assert_eq!(told("PMI_RANK=1 PMI_SIZE=4"), launch);
        assert_eq!(told("PMI_RANK=1"), None);
        assert_eq!(told("PMI_RANK=4 PMI_SIZE=4"), None);
        assert_eq!(told(""), None);
    }

    #[test]
    fn srun_with_and_without_pmi_is_told_from_a_batch_script() {
        let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NTASKS=8 SLURM_PROCID=2";
        let of = |launcher| Some(Launch { rank: 2, size: 4, launcher });
        assert_eq!(told(step), of(Launcher::SrunAlone));
        assert_eq!(told(&format!("{step} PMIX_RANK=2 PMIX_NAMESPACE=slurm.7.0")), of(Launcher::SrunPmix));
        assert_eq!(told(&format!("{step} PMI_RANK=2 PMI_SIZE=4")), of(Launcher::Mpirun));
        assert_eq!(
            told(&format!("{step} OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4")),
            of(Launcher::Mpirun),
            "an mpirun that starts its daemons by srun"
        );
        assert_eq!(told("SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_PROCID=2"), of(Launcher::SrunAlone));
        assert_eq!(told("SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 SLURM_PROCID=0"), None);
        let script = "SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0";
        assert_eq!(told(script), None, "the shell of salloc");
        assert_eq!(told(&format!("{script} SLURM_STEP_ID=4294967291")), None, "the script of sbatch");
    }
}
