// @module-tag gvisor
import { archiveContract } from "../support/archive-contract.ts";

archiveContract("gvisor");
