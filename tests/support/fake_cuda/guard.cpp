// A device guard for CUDA that does nothing. Preloaded into a build of torch for CPUs, it lets FakeTensors on "cuda:0",
// which have shapes but no data, go through autograd's engine (tests/model/test_fake_cuda.py compiles and uses it).
#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

const c10::Device only_device(c10::DeviceType::CUDA, 0);

struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  using Stream = c10::Stream;
  static Stream only_stream() { return Stream(Stream::DEFAULT, only_device); }
  c10::Device exchangeDevice(c10::Device) const override { return only_device; }
  c10::Device getDevice() const override { return only_device; }
  Stream getStream(c10::Device) const noexcept override { return only_stream(); }
  Stream getDefaultStream(c10::Device) const override { return only_stream(); }
  Stream getNewStream(c10::Device, int = 0) const override { return only_stream(); }
  Stream exchangeStream(Stream) const noexcept override { return only_stream(); }
  void record(void** event, const Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

Guard* guard = new Guard();
c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, guard);

}  // namespace

namespace at {

struct CUDAHooks : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

namespace accelerator {
std::optional<c10::DeviceType> getAccelerator(bool) { return c10::DeviceType::CUDA; }
bool isAccelerator(c10::DeviceType type) { return type == c10::DeviceType::CUDA; }
}  // namespace accelerator

}  // namespace at
