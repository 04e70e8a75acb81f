import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** What the command line reads from the environment; other files do not read it. */
export interface Environment {
  apiKey: string | undefined;
  apiUrl: string | undefined;
  credentialsPath: string;
  /** The file that GitHub shows as the summary of a job. */
  githubSummaryPath: string | undefined;
  /** What can be made again: private servers, repositories, packages. */
  cacheDirectory: string;
  /** What has to last: applications that are kept running, with their versions and logs. */
  stateDirectory: string;
  /** What container engines read: where their daemon is, and who asks. */
  containerVariables: Record<string, string>;
  /** https://no-color.org: any value that is not empty. */
  hasNoColor: boolean;
  term: string | undefined;
}

export function readEnvironment(variables: NodeJS.ProcessEnv = process.env): Environment {
  const read = (name: string): string | undefined => (variables[name] === "" ? undefined : variables[name]);
  const configHome = read("XDG_CONFIG_HOME") ?? join(read("HOME") ?? homedir(), ".config");
  const cacheHome = read("ATOLL_CACHE_DIR") ?? read("XDG_CACHE_HOME") ?? join(read("HOME") ?? homedir(), ".cache");
  const stateHome = read("XDG_STATE_HOME") ?? join(read("HOME") ?? homedir(), ".local", "state");
  const isForContainers = (name: string): boolean => /^(DOCKER_|CONTAINER)|^(HOME|PATH|XDG_RUNTIME_DIR)$/.test(name);
  return {
    apiKey: read("ATOLL_API_KEY"),
    apiUrl: read("ATOLL_API_URL"),
    credentialsPath: join(configHome, "atoll", "credentials.json"),
    githubSummaryPath: read("GITHUB_STEP_SUMMARY"),
    cacheDirectory: join(resolve(cacheHome), "atoll"),
    stateDirectory: join(resolve(stateHome), "atoll"),
    containerVariables: Object.fromEntries(
      Object.entries(variables).flatMap(([name, value]) =>
        value !== undefined && isForContainers(name) ? [[name, value]] : [],
      ),
    ),
    hasNoColor: read("NO_COLOR") !== undefined,
    term: read("TERM"),
  };
}
