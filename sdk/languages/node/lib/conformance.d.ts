/**
 * Runs the conformance suite, `countersign provider test`, on a provider's program and returns what it prints. The promise is
 * rejected with that if a check fails, or if countersign is not on the PATH. kit is the path of a kit file; settings replace its.
 */
export function conformance(program: string, options?: {kit?: string; settings?: object}): Promise<string>;
