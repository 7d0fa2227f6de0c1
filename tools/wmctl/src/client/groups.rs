//! The container, the pod and the batch job of a process, from the names of its control groups
//! (`/proc/PID/cgroup`). Pure.
//!
//! Docker, podman, containerd and CRI-O name a group by the container's id, with or without systemd
//! (`docker-ID.scope`, `docker/ID`); the kubelet names the groups around it by the pod's uid, where
//! systemd's form has `_` for `-`; Slurm names the job.

/// The systems that a process was started by; `None` for those that do not show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct GroupNames {
    pub(super) container_id: Option<String>,
    pub(super) pod_uid: Option<String>,
    pub(super) slurm_job_id: Option<String>,
}

/// What stands before a container's id in the name of a scope.
const ENGINES: [&str; 4] = ["docker-", "libpod-", "cri-containerd-", "crio-"];

/// Reads all lines: the versions of control groups may be mixed, and a name may show in one only.
pub(super) fn names(listed: &str) -> GroupNames {
    let paths = listed.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let parts: Vec<&str> = paths.flat_map(|path| path.split('/')).collect();
    // The innermost one: a container may run in a container.
    let innermost = |name: fn(&str) -> Option<String>| parts.iter().rev().find_map(|part| name(part));
    let is_slurm = parts.iter().any(|part| part.starts_with("slurm"));
    GroupNames {
        container_id: innermost(container),
        pod_uid: innermost(pod),
        slurm_job_id: innermost(job).filter(|_| is_slurm),
    }
}

fn container(part: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    let id = ENGINES.iter().find_map(|engine| scope.strip_prefix(engine)).unwrap_or(scope);
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn pod(part: &str) -> Option<String> {
    let slice = part.strip_suffix(".slice").unwrap_or(part);
    let (before, uid) =
        slice.rsplit_once("pod").filter(|(before, _)| before.is_empty() || before.ends_with('-'))?;
    let uid = uid.replace('_', "-");
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    // libpod's groups are podman's, and have no uid behind them.
    (is_uid && !before.ends_with("lib")).then_some(uid)
}

fn job(part: &str) -> Option<String> {
    let number = part.strip_prefix("job_")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then(|| number.to_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a program's figures are put on another container's or job's account.
    use super::*;

    const ID: &str = "8f3c0a1e5b7d9f2c4e6a8b0d1f3e5c7a9b2d4f6e8a0c1b3d5f7e9a2c4b6d8f01";
    const UID: &str = "3b0ff5a1-2f68-4d3c-9a55-0c8f0e6f1a2b";

    fn of(path: &str) -> [Option<String>; 3] {
        let GroupNames { container_id, pod_uid, slurm_job_id } =
            names(&format!("1:name=systemd:/\n0::{path}\n"));
        [container_id, pod_uid, slurm_job_id]
    }

    #[test]
    fn each_engine_names_its_container() {
        for path in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
        ] {
            assert_eq!(of(&path), [Some(ID.to_owned()), None, None], "{path}");
        }
        let monitor = format!("/machine.slice/libpod-conmon-{ID}.scope");
        assert_eq!(of(&monitor), [None, None, None], "podman's monitor is in no container");
        assert_eq!(of("/user.slice/user-1000.slice/session-3.scope"), [None, None, None]);
    }

    #[test]
    fn a_pods_container_has_both_names() {
        let with = UID.replace('-', "_");
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{with}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods.slice/kubepods-pod{with}.slice/crio-{ID}.scope"),
            format!("/kubepods/besteffort/pod{UID}/{ID}"),
        ] {
            assert_eq!(of(&path), [Some(ID.to_owned()), Some(UID.to_owned()), None], "{path}");
        }
        let nested = format!("/kubepods/pod{UID}/{}/docker/{ID}", ID.replace('8', "9"));
        assert_eq!(of(&nested)[0].as_deref(), Some(ID), "the innermost container");
    }

    #[test]
    fn slurm_names_its_job_in_both_versions() {
        for path in [
            "/slurm/uid_1000/job_4711/step_0/task_0",
            "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
        ] {
            assert_eq!(of(path), [None, None, Some("4711".to_owned())], "{path}");
        }
        assert_eq!(of("/system.slice/job_7/x"), [None, None, None], "another system's job");
    }
}
