// @module-tag gvisor
import { processContract } from "../support/process-contract.ts";

processContract("gvisor");
