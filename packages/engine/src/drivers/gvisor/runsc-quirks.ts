/** The first release that reads a link's extended attributes by its path. */
const readsLinksByPath = 20_241_021;

/**
 * Before that release, runsc reads the attributes of a symbolic link through a descriptor that cannot be read from, and
 * `ls -l` of a link prints "Bad file descriptor". If the host says that there are no attributes, runsc says so inside.
 * These releases can neither set nor list any attribute, except on a tmpfs, which is not on the host.
 */
export function misreadsLinkAttributes(runscVersion: string): boolean {
  const date = /(?:^|[~-])(\d{8})\b/.exec(runscVersion)?.[1];
  return date !== undefined && Number(date) < readsLinksByPath;
}
