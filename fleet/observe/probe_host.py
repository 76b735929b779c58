"""Ask a host what it is: one shell script over the `Commands` seam, then a pure parser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleet.errors import OutsideError
from fleet.observe.parse_probe import parse_probe

if TYPE_CHECKING:
    from fleet.effects.commands import Commands
    from fleet.facts.host_facts import HostFacts

PROBE_TIMEOUT_S = 60.0

# POSIX sh, read-only, every line may fail alone; `@@ name` opens a section of the answer
SCRIPT = r"""
read_or_dash() { cat "$1" 2>/dev/null || echo -; }
say() { printf '\n@@ %s\n' "$1"; }
show() { say "$1"; shift; cat "$@" 2>/dev/null; }
has() { command -v "$1" >/dev/null 2>&1; }
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/cuda/bin:/opt/rocm/bin
LC_ALL=C; export LC_ALL
say uname; uname -srm
show os /etc/os-release
show cpuinfo /proc/cpuinfo
show meminfo /proc/meminfo
show status /proc/self/status
show limits /proc/self/limits
show cgroup /proc/self/cgroup
say topology
for c in /sys/devices/system/cpu/cpu[0-9]*; do
  [ -r "$c/topology/thread_siblings_list" ] || continue
  echo "${c##*/cpu} $(cat "$c/topology/thread_siblings_list")"
done 2>/dev/null
say numa
for n in /sys/devices/system/node/node[0-9]*; do
  [ -d "$n" ] || continue
  echo "${n##*/node} $(cat "$n/cpulist") $(sed -n 's/.*MemTotal: *\([0-9]*\).*/\1/p' "$n/meminfo")"
done 2>/dev/null
show numa_balancing /proc/sys/kernel/numa_balancing
show hugepages /proc/sys/vm/nr_hugepages
say cgroup2
while IFS=: read -r id controllers path; do
  [ "$id" = 0 ] || continue
  for root in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    dir=$root$path
    while [ "$dir" != "$root" ] && [ -n "$dir" ]; do
      for f in cpu.max memory.max memory.high; do
        [ -r "$dir/$f" ] && echo "$f $(cat "$dir/$f")"
      done
      dir=${dir%/*}
    done
    for f in cpu.max memory.max; do [ -r "$root/$f" ] && echo "$f $(cat "$root/$f")"; done
  done
done < /proc/self/cgroup 2>/dev/null
say cgroup1
while IFS=: read -r id controllers path; do
  case ",$controllers," in
    *,memory,*) kind=memory; files="memory.limit_in_bytes" ;;
    *,cpu,*) kind=cpu; files="cpu.cfs_quota_us cpu.cfs_period_us" ;;
    *) continue ;;
  esac
  for root in "/sys/fs/cgroup/$controllers" "/sys/fs/cgroup/$kind"; do
    [ -d "$root" ] || continue
    dir=$root$path
    [ -d "$dir" ] || dir=$root
    while :; do
      line=$kind
      for f in $files; do [ -r "$dir/$f" ] && line="$line $(cat "$dir/$f")"; done
      echo "$line"
      [ "$dir" = "$root" ] && break
      dir=${dir%/*}
      [ "${#dir}" -lt "${#root}" ] && break
    done
    break
  done
done < /proc/self/cgroup 2>/dev/null
say nvidia
has nvidia-smi && nvidia-smi --query-gpu=name,memory.total,memory.free,driver_version,compute_cap \
  --format=csv,noheader,nounits 2>/dev/null
say drm
for d in /sys/class/drm/card[0-9]*; do
  case "${d##*/}" in *-*) continue ;; esac
  [ -r "$d/device/vendor" ] || continue
  d=$d/device
  echo "$d" "$(cat "$d/vendor")" "$(read_or_dash "$d/mem_info_vram_total")" \
    "$(read_or_dash "$d/mem_info_gtt_total")" "$(read_or_dash "$d/mem_info_vram_used")" \
    "$(cat "$d/product_name" 2>/dev/null)"
done 2>/dev/null
say dri; ls /dev/dri /dev/kfd 2>/dev/null
say rocm
has rocm-smi && rocm-smi --showmeminfo vram --showproductname --showdriverversion --csv 2>/dev/null
say podman; has podman && podman --version 2>/dev/null
say uid; id -u
say systemd; [ -d /run/systemd/system ] && echo yes || echo no
say quadlet
for q in /usr/libexec/podman/quadlet /usr/lib/podman/quadlet /usr/local/libexec/podman/quadlet; do
  [ -x "$q" ] && echo "$q"
done
say selinux; has getenforce && getenforce 2>/dev/null
say linger; [ -e "/var/lib/systemd/linger/$(id -un)" ] && echo yes || echo no
say rdma; ls /sys/class/infiniband 2>/dev/null
say disk; df -Pk "${FLEET_MODELS:-$HOME}" 2>/dev/null | tail -1

say end
"""


def probe_host(commands: Commands, name: str, *, models_dir: str | None = None) -> HostFacts:
    """Return the facts of the host that `commands` runs on. Raises `OutsideError`."""
    setting = f"FLEET_MODELS={_quoted(models_dir)}\n" if models_dir else ""
    result = commands.run(("sh", "-s"), stdin=setting + SCRIPT, timeout_s=PROBE_TIMEOUT_S)
    if "@@ end" not in result.stdout:
        said = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.code}"]
        raise OutsideError(f"cannot probe the host: {said[0]}", where=name)
    return replace(parse_probe(result.stdout, name=name), probed=True)


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"
