import { homedir } from "node:os";
import { join } from "node:path";

/** What the command line reads from the environment; other files do not read it. */
export interface Environment {
  apiKey: string | undefined;
  apiUrl: string | undefined;
  credentialsPath: string;
  /** The file that GitHub shows as the summary of a job. */
  githubSummaryPath: string | undefined;
  /** https://no-color.org: any value that is not empty. */
  hasNoColor: boolean;
  term: string | undefined;
}

export function readEnvironment(variables: NodeJS.ProcessEnv = process.env): Environment {
  const read = (name: string): string | undefined => (variables[name] === "" ? undefined : variables[name]);
  const configHome = read("XDG_CONFIG_HOME") ?? join(read("HOME") ?? homedir(), ".config");
  return {
    apiKey: read("ATOLL_API_KEY"),
    apiUrl: read("ATOLL_API_URL"),
    credentialsPath: join(configHome, "atoll", "credentials.json"),
    githubSummaryPath: read("GITHUB_STEP_SUMMARY"),
    hasNoColor: read("NO_COLOR") !== undefined,
    term: read("TERM"),
  };
}
