import { execFileSync } from "node:child_process";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { guestBinaryPath } from "../../tools/setup/guest.mjs";
import { makeDataDir } from "../support/test-root.ts";

/** A shell function that prints everything that a reader can see of a tree, sorted. */
const show = String.raw`show() {
cd "$1"
find . \( -type d -printf '%P %y %m %U %G %T@\n' \) -o -printf '%P %y %m %U %G %s %T@ %l %n\n' | sort
find . -type f -print0 | sort -z | xargs -0 -r sha256sum
python3 -c '
import os
for top, names, files in os.walk("."):
    for name in sorted(names + files):
        path = os.path.join(top, name)
        for key in sorted(os.listxattr(path, follow_symlinks=False)):
            print(path, key, os.getxattr(path, key, follow_symlinks=False))
' | sort; cd /; }`;

const mountLayers = `mount_layers() {
  local options="redirect_dir=off,index=off,metacopy=off"
  mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$W,$options" $M
}`;

/** Runs a script in a new mount namespace, so that nothing stays mounted. */
function inNamespace(dir: string, script: string): string {
  const prelude = `set -e -o pipefail; D=${dir}; M=$D/m; W=$D/w; G=${guestBinaryPath()}\n${show}\n${mountLayers}\n`;
  return execFileSync("unshare", ["--mount", "bash", "-c", prelude + script], {
    encoding: "utf8",
    maxBuffer: 64 << 20,
  });
}

/** Changes that one life of a sandbox may write over another: each pair of kinds, in both orders, and attributes. */
const template = `
mkdir -p B/dir/sub B/gone B/remade B/deep/a/b/c; echo t >B/dir/file; echo t >B/dir/sub/file; echo t >B/gone/file
echo t >B/remade/old; echo t >B/plain; echo t >B/deep/a/b/c/file; ln -s plain B/link; ln B/plain B/plain2
mkdir B/to-file; echo t >B/to-file/x; echo t >B/to-dir; echo t >B/both
mkdir B/half; echo t >B/half/1; echo t >B/half/2`;
const first = `
rm -r gone; rm both; rm -r remade; mkdir remade; echo 1 >remade/first; rm -r to-file; echo 1 >to-file
rm to-dir; mkdir to-dir; echo 1 >to-dir/x
echo 1 >>dir/file; echo 1 >new; ln new new2; ln -s nowhere lost; mkfifo pipe; truncate -s 10M sparse; echo end >>sparse
mkdir kept; echo 1 >kept/a; echo 1 >kept/b; chmod 4755 new; chown 1000:1000 dir/file
rm half/1; touch -d 2001-01-01 dir/sub
mkdir again; echo 1 >again/x; echo 1 >swap-a; mkdir swap-b; echo 1 >swap-b/x; rm deep/a/b/c/file; mkdir -m 1777 sticky`;
const second = `
mkdir gone; echo 2 >gone/other; echo 2 >both; rm remade/first; echo 2 >remade/old
rm to-file; mkdir to-file; echo 2 >to-file/y
rm -r to-dir; ln -s plain to-dir; rm dir/file; mkdir dir/file; echo 2 >dir/file/x
rm new2; rm lost; echo 2 >kept/a; rm kept/b; rm half/2; echo 2 >half/3
rm -r again; mkdir again; echo 2 >again/y; rm swap-a; mkdir swap-a; echo 2 >swap-a/x; rm -r swap-b; echo 2 >swap-b
rm -r deep/a; mkdir -p deep/a/b; echo 2 >deep/a/b/new; chown 5:6 sticky; python3 -c '
import os, socket
os.setxattr("kept", "user.note", b"dir"); os.setxattr("plain", "user.note", b"file")
socket.socket(socket.AF_UNIX).bind("socket")
'`;

test("a merged layer shows the same as its two layers, and lists only names that exist", async () => {
  const dir = await makeDataDir();
  await Promise.all(["B", "U1", "U2", "T", "L", "m", "w"].map((name) => mkdir(join(dir, name))));
  try {
    inNamespace(dir, `cd $D; ${template}\nmount_layers $D/B $D/U1; cd $M; ${first}; cd /; umount $M; rm -rf $W/*`);
    inNamespace(dir, `mount_layers $D/U1:$D/B $D/U2; cd $M; ${second}; cd /; umount $M; rm -rf $W/*`);
    inNamespace(dir, "$G merge $D/U1 $D/U2 $D/T $D/L $D/B");
    const readOnly = (lower: string): string =>
      inNamespace(dir, `mount -t overlay overlay -o "lowerdir=${lower}" $M; show $M`);
    const expected = readOnly(`${dir}/U2:${dir}/U1:${dir}/B`);
    expect(expected).toContain("again/y");
    expect(expected).not.toContain("again/x");
    expect(readOnly(`${dir}/T:${dir}/B`)).toBe(expected);
    // The holes of a sparse file stay holes.
    expect(Number(inNamespace(dir, "stat -c %b $D/T/sparse"))).toBeLessThan(100);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test("links in a layer are not followed out of it", async () => {
  const dir = await makeDataDir();
  await Promise.all(["U1", "U2", "T", "L", "outside"].map((name) => mkdir(join(dir, name))));
  try {
    const shown = inNamespace(
      dir,
      `cd $D; echo secret >outside/file; ln -s $D/outside U1/dir; ln -s $D/outside/file U1/file
mkdir U2/dir; echo in >U2/dir/file; echo in >U2/file
$G merge U1 U2 T L; cat outside/file T/dir/file T/file; find outside -type f | wc -l`,
    );
    expect(shown).toBe("secret\nin\nin\n1\n");
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
