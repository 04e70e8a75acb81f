import { accountFiles, sandboxUser, shadowGid } from "./host-accounts.ts";
import type { SkeletonEntry } from "./skeleton.ts";

const root = { uid: 0, gid: 0 };
const user = { uid: sandboxUser.uid, gid: sandboxUser.gid };

const directory = (path: string, mode = 0o755, owner = root): SkeletonEntry => ({
  kind: "directory",
  path,
  mode,
  ...owner,
});
const file = (path: string, content: string, mode = 0o644, owner = root): SkeletonEntry => ({
  kind: "file",
  path,
  content,
  mode,
  ...owner,
});
const link = (path: string, target: string): SkeletonEntry => ({ kind: "link", path, target });

const sharedTmp = 0o1777;

const profile = `# Read by login shells.
if [ "$(id -u)" -eq 0 ]; then
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
else
  PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games
fi
export PATH
if [ -n "\${BASH_VERSION-}" ] && [ -n "\${PS1-}" ] && [ -f /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
if [ -d /etc/profile.d ]; then
  for script in /etc/profile.d/*.sh; do
    [ -r "$script" ] && . "$script"
  done
  unset script
fi
`;

const bashrc = `# Read by interactive shells.
[ -z "\${PS1-}" ] && return
shopt -s checkwinsize
PS1='\\u@\\h:\\w\\$ '
`;

const homeProfile = `[ -n "\${BASH_VERSION-}" ] && [ -f "$HOME/.bashrc" ] && . "$HOME/.bashrc"
[ -d "$HOME/bin" ] && PATH="$HOME/bin:$PATH"
[ -d "$HOME/.local/bin" ] && PATH="$HOME/.local/bin:$PATH"
`;

const homeBashrc = `case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
alias ls='ls --color=auto'
alias ll='ls -alF'
`;

/** Only root may become another user, because no account has a password. */
const becomeUser = `auth sufficient pam_rootok.so
auth required pam_unix.so
account sufficient pam_rootok.so
account required pam_unix.so
session required pam_unix.so
`;
const refuseAll = `auth required pam_deny.so
account required pam_deny.so
session required pam_deny.so
password required pam_deny.so
`;

/**
 * Everything of a sandbox's root that does not come from the host. There is no name server on purpose: the proxy
 * outside resolves names.
 */
export const ownEntries: readonly SkeletonEntry[] = [
  directory(""),
  ...["boot", "dev", "etc", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys", "var"].map((path) =>
    directory(path),
  ),
  directory("root", 0o700),
  directory("tmp", sharedTmp),
  directory("run/lock", sharedTmp),
  ...["cache", "lib", "local", "log", "mail", "opt", "spool"].map((name) => directory(`var/${name}`)),
  directory("var/tmp", sharedTmp),
  link("var/run", "/run"),
  link("var/lock", "/run/lock"),

  file("etc/passwd", accountFiles.passwd),
  file("etc/group", accountFiles.group),
  file("etc/shadow", accountFiles.shadow, 0o640, { uid: 0, gid: shadowGid }),
  file("etc/gshadow", accountFiles.gshadow, 0o640, { uid: 0, gid: shadowGid }),
  file("etc/hostname", "sandbox\n"),
  file("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
  file("etc/resolv.conf", "# No name server: names are resolved by the proxy, see HTTP_PROXY and HTTPS_PROXY.\n"),
  file(
    "etc/nsswitch.conf",
    "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n",
  ),
  file("etc/fstab", ""),
  link("etc/mtab", "/proc/mounts"),
  directory("etc/pam.d"),
  ...["su", "su-l", "runuser", "runuser-l"].map((name) => file(`etc/pam.d/${name}`, becomeUser)),
  file("etc/pam.d/other", refuseAll),
  file("etc/profile", profile),
  directory("etc/profile.d"),
  file("etc/bash.bashrc", bashrc),

  directory("home/user", 0o755, user),
  file("home/user/.profile", homeProfile, 0o644, user),
  file("home/user/.bashrc", homeBashrc, 0o644, user),
  file("root/.profile", homeProfile),
  file("root/.bashrc", homeBashrc),
];
