// The logic under test imports nothing of JupyterLab but Lumino, so no browser is needed.
module.exports = {
  testEnvironment: 'node',
  testMatch: ['<rootDir>/src/**/__tests__/*.spec.ts'],
  transform: { '\\.[jt]sx?$': ['@swc/jest', { module: { type: 'commonjs' } }] },
  transformIgnorePatterns: ['/node_modules/(?!@lumino)']
};
