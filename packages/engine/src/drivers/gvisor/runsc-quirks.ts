/** The first release in which a link's extended attributes are read by its path. */
const readsLinksByPath = 20_241_021;

/**
 * Before that, runsc reads the attributes of a symbolic link through a descriptor that cannot be read from, and `ls -l`
 * of a link prints "Bad file descriptor". Told by the host that there are no attributes, it says so inside. These
 * releases can neither set nor list any, but on a tmpfs, which is not of the host.
 */
export function misreadsLinkAttributes(runscVersion: string): boolean {
  const date = /(?:^|[~-])(\d{8})\b/.exec(runscVersion)?.[1];
  return date !== undefined && Number(date) < readsLinksByPath;
}
