/** The account that commands run as unless they request another one. */
export const sandboxUser = { name: "user", uid: 1000, gid: 1000, home: "/home/user", shell: "/bin/bash" } as const;

/** The numbers are Debian's. Programs look some of these accounts up; none of them can log in. */
const systemUsers: readonly [name: string, uid: number, gid: number, home: string][] = [
  ["daemon", 1, 1, "/usr/sbin"],
  ["bin", 2, 2, "/bin"],
  ["sys", 3, 3, "/dev"],
  ["man", 6, 12, "/var/cache/man"],
  ["mail", 8, 8, "/var/mail"],
  ["www-data", 33, 33, "/var/www"],
  ["_apt", 42, 65_534, "/nonexistent"],
  ["nobody", 65_534, 65_534, "/nonexistent"],
];

const systemGroups: readonly [name: string, gid: number][] = [
  ["root", 0],
  ["daemon", 1],
  ["bin", 2],
  ["sys", 3],
  ["adm", 4],
  ["tty", 5],
  ["disk", 6],
  ["mail", 8],
  ["man", 12],
  ["www-data", 33],
  ["shadow", 42],
  ["utmp", 43],
  ["staff", 50],
  ["users", 100],
  ["nogroup", 65_534],
];

export function passwdLine({
  name,
  uid,
  gid,
  home,
  shell,
}: {
  name: string;
  uid: number;
  gid: number;
  home: string;
  shell: string;
}): string {
  return `${name}:x:${uid}:${gid}::${home}:${shell}\n`;
}

export function groupLine(name: string, gid: number): string {
  return `${name}:x:${gid}:\n`;
}

/** No password matches, so that no password makes a process another user. */
function shadowLine(name: string): string {
  return `${name}:*:19000:0:99999:7:::\n`;
}

export const accountFiles = {
  passwd: [
    passwdLine({ name: "root", uid: 0, gid: 0, home: "/root", shell: "/bin/bash" }),
    ...systemUsers.map(([name, uid, gid, home]) => passwdLine({ name, uid, gid, home, shell: "/usr/sbin/nologin" })),
    passwdLine(sandboxUser),
  ].join(""),
  group: [...systemGroups, [sandboxUser.name, sandboxUser.gid] as const]
    .map(([name, gid]) => groupLine(name, gid))
    .join(""),
  shadow: ["root", ...systemUsers.map(([name]) => name), sandboxUser.name].map(shadowLine).join(""),
  gshadow: [...systemGroups.map(([name]) => name), sandboxUser.name].map((name) => `${name}:*::\n`).join(""),
};

export const shadowGid = 42;
