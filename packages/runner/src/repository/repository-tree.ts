/** The files of a repository at one commit, read on the host without a work tree. */
export interface RepositoryTree {
  readonly commit: string;
  /** The content of a regular file as text, or `undefined` where there is none. At most 1 MiB is read. */
  read(path: string): Promise<string | undefined>;
  /** The nearest tag before the commit, such as `v1.7.1-4-gcffd4e0`, where tags are known. */
  describe(): Promise<string | undefined>;
  /** Names in a directory, sorted; the root is `""`. Empty where there is no such directory. */
  list(path: string): Promise<string[]>;
}
