//! Columns that say what started programs: each is there if one of the programs has it.

use super::identity::ProcessIdentity;
use crate::human;

/// The columns of a table, for the programs that are in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origins {
    containers: bool,
    jobs: bool,
}

impl Origins {
    pub(crate) fn of<'a>(programs: impl IntoIterator<Item = &'a ProcessIdentity>) -> Self {
        let none = Self { containers: false, jobs: false };
        programs.into_iter().fold(none, |has, identity| Self {
            containers: has.containers || identity.container_id.is_some(),
            jobs: has.jobs || identity.slurm_job_id.is_some(),
        })
    }

    pub(crate) fn headings(self) -> impl Iterator<Item = &'static str> {
        self.chosen(["CONTAINER", "JOB"])
    }

    pub(crate) fn cells(self, identity: &ProcessIdentity) -> impl Iterator<Item = String> {
        let texts = [identity.container(), identity.slurm_job_id.as_deref()];
        self.chosen(texts.map(|text| human::name(text.unwrap_or_default())))
    }

    fn chosen<T>(self, [container, job]: [T; 2]) -> impl Iterator<Item = T> {
        self.containers.then_some(container).into_iter().chain(self.jobs.then_some(job))
    }
}
